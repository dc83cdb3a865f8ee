"""Layouts of tensors survive being packed."""

import pytest
import torch

from lazyknife.saving.layout import Packed, pack, place_of, unpack

CPU = torch.device("cpu")
BASE = torch.arange(24, dtype=torch.float64).reshape(2, 3, 4)
LAYOUTS = {
    "contiguous": BASE,
    "transposed": BASE[0].T,
    "permuted": BASE.permute(2, 0, 1),
    "repeated": BASE[0, 0].expand(5, 4),
    "repeated columns": torch.ones(3, 1).expand(3, 7),
    "a number": BASE[0, 0, 0],
    "a repeated number": BASE[0, 0, 0].expand(3),
    "empty": BASE[:0],
    "with gaps": BASE[:, ::2, ::3],
    "columns": BASE[0, :, 1:3],
    "half": BASE.to(torch.bfloat16).mT,
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_values_and_strides_are_restored(name):
    tensor = LAYOUTS[name]
    packed = pack(tensor)
    again = unpack(packed, CPU)
    assert packed.values.is_contiguous()
    assert again.dtype == tensor.dtype
    assert torch.equal(again, tensor)
    assert again.stride() == tensor.stride()


def test_repeated_entries_are_stored_once_and_slices_without_the_rest():
    assert pack(torch.zeros(1, 1).expand(1000, 1000)).values.numel() == 1
    assert pack(torch.zeros(1000, 1000)[:, :2]).values.numel() == 2000
    assert pack(torch.zeros(3, 3)[:, :2]).values.untyped_storage().nbytes() == 6 * 4


def test_unpacked_tensors_have_memory_of_their_own():
    values = torch.ones(3)
    again = unpack(Packed(values, [3], [1]), CPU)
    again[0] = 5.0
    assert values[0] == 1.0


@pytest.mark.parametrize("stride", [[1, 3], [0, 1], [1], [-3, 1]])
def test_a_layout_that_does_not_fit_is_refused(stride):
    with pytest.raises((ValueError, RuntimeError)):
        unpack(Packed(torch.ones(2, 3), [2, 3], stride), CPU)


def test_no_memory_is_taken_for_entries_that_are_not_there():
    with pytest.raises(ValueError, match="does not fit"):
        unpack(Packed(torch.ones(3), [10**15], [1]), torch.device("cpu"))


def test_the_same_entries_have_the_same_place():
    base = torch.ones(4, 4)
    assert place_of(base[0]) == place_of(base[0])
    assert len({place_of(view) for view in (base, base.T, base[0], base[1], base.clone())}) == 5
    assert place_of(torch.empty(0)) != place_of(torch.empty(0).long())
