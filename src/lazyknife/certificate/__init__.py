"""What coverage is guaranteed, by which theorem, on what condition; and `plan`, the inverse."""

# mypy: implicit-reexport
# ruff: noqa: F401

from .certify import Certificate, Certifier, Claim, Noted, certify, lazy_claim, paper_bound
from .plan import Plan, plan, plan_rows
