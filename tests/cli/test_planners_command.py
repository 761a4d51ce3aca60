from cefito.planners.methods import METHODS
from cefito.study.trials import ROWS


def test_methods_and_rows_as_tables(ran):
    out, err = ran("planners")
    assert err == ""
    methods, rows = out.split("rows, as cefito compare")
    lines = {line.split()[0]: line for line in methods.splitlines()[2:]}
    assert list(lines) == list(METHODS)
    for part in ("ViterbiPlanNet", "5.55 M", "(CVPR 2026, arXiv 2603.04265)"):
        assert part in lines["viterbi"]
    assert "descriptions of states (if given)" in lines["viterbi"]
    assert "constraints" in lines["cefito"]
    assert "constraints" not in lines["viterbi"]
    assert "not published" in lines["nearest"]
    assert sorted(line.split()[0] for line in rows.splitlines()[2:]) == sorted(ROWS)
    kinds = {line.split()[0]: line.split()[-1] for line in rows.splitlines()[2:]}
    assert kinds["pkg"] == "pkg"
