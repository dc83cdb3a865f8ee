"use strict";

// A cell with data-value counts as that number, one with data-missing as null, others as text.
function sortKey(cell) {
  if ("missing" in cell.dataset) return null;
  return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent;
}

const collator = new Intl.Collator(undefined, { numeric: true });

// Missing cells come last whatever the direction (1 or -1); numbers stand before text.
function compare(a, b, direction) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a !== typeof b) return direction * (typeof a === "number" ? -1 : 1);
  return direction * (typeof a === "number" ? (a > b) - (a < b) : collator.compare(a, b));
}

// Sort the table by the column of this header: upwards first, then the other way round.
function sortBy(header) {
  const table = header.closest("table");
  const upwards = header.getAttribute("aria-sort") !== "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", upwards ? "ascending" : "descending");

  const rows = Array.from(table.tBodies[0].rows, (row) => ({
    row,
    key: sortKey(row.cells[header.cellIndex]),
  }));
  rows.sort((a, b) => compare(a.key, b.key, upwards ? 1 : -1));
  table.tBodies[0].append(...rows.map((entry) => entry.row));
}

for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => sortBy(button.closest("th")));
}

// Show the rows in which all words that were typed occur, and say how many these are.
function search(field) {
  const section = field.closest("section");
  const count = section.querySelector(".count");
  const rows = Array.from(section.querySelector("tbody").rows);
  count.dataset.all ??= count.textContent;
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of rows) {
    const text = Array.from(row.cells, (cell) => cell.textContent.toLowerCase()).join(" ");
    row.hidden = !words.every((word) => text.includes(word));
  }
  const left = rows.filter((row) => !row.hidden).length;
  count.textContent = words.length ? `${left.toLocaleString("en")} of ${count.dataset.all}` : count.dataset.all;
}

for (const field of document.querySelectorAll("input[type=search]")) {
  field.hidden = false;
  field.addEventListener("input", () => search(field));
}
