from xml.etree import ElementTree as ET

from deploy.embedded.demo.timeline import COLUMNS, Span, svg, text

SPANS = [
    Span("n1/0", "train", "research", 0.0, 5.0),
    Span("n1/1", "train", "research", 0.0, 5.0),
    Span("n1/0", "serve <&>", "product", 5.0, 10.0),
]


def test_the_text_has_a_row_a_device_and_a_key() -> None:
    half = COLUMNS // 2
    assert text(SPANS, ["n1/0", "n1/1", "n1/2"]) == [
        f"n1/0 {'A' * half}{'B' * half}",
        f"n1/1 {'A' * half}{'.' * half}",
        f"n1/2 {'.' * COLUMNS}",
        "A train   B serve <&>",
    ]


def test_a_grant_too_short_to_see_still_gets_its_letter() -> None:
    line = text([Span("a", "blink", "t", 99.0, 99.01), Span("b", "long", "t", 0.0, 100.0)], ["a", "b"])[0]
    assert line.count("A") == 1


def test_the_picture_has_a_bar_a_grant_in_its_tenants_colour() -> None:
    root = ET.fromstring(svg(SPANS, ["n1/0", "n1/1"]))
    bars = [bar for bar in root.iter("{http://www.w3.org/2000/svg}rect") if len(bar)]
    assert [(bar[0].text, bar.get("fill")) for bar in bars] == [
        ("train", "#ee6677"),
        ("train", "#ee6677"),
        ("serve <&>", "#4477aa"),
    ]
    assert len({bar.get("y") for bar in bars}) == 2


def test_no_grants_at_all_can_be_drawn() -> None:
    assert text([], ["a"]) == [f"a {'.' * COLUMNS}"]
    assert ET.fromstring(svg([], ["a"])).tag.endswith("svg")
