"""hostpin_vllm.py, the drop-in for vLLM's functions, on an installed library."""
import pytest
from variants import VARIANTS, run_cases


@pytest.mark.parametrize("variant", VARIANTS)
def test_within_a_process(variant, tmp_path):
    assert run_cases("python_vllm_cases.py", variant, tmp_path) >= 33
