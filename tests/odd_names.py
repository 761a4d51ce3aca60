"""Names of videos, tasks and actions that break what takes them for paths, numbers or formulas."""

ODD = (
    *("../../x", "/abs", "C:\\x", "cam", "P01/cam", "P01/cam14", "a\\b", "a_b", "x", "x.npy", ".x"),
    *("con", "3", "id:1", "name:2", "start", "end", "rate", "%41", "A", "a", "é", "l" * 300),
    *("=1+1", "+1", "-1", "@x", "'=1", "''", "two  spaces", "u\u2028v", "a,b", 'say "x"', "a;b"),
    *("<b>&amp;", "a --> b", "None", "nan", "true", "{x}"),
)
