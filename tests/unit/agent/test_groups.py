from pathlib import Path

from services.agent.store.groups import name_of


def test_agents_of_one_node_name_but_two_runtime_folders_share_no_control_group() -> None:
    names = [name_of("node_1", Path(folder)) for folder in ("/run/a", "/run/b", "/run/a")]
    assert (names[0] == names[2], names[0] == names[1]) == (True, False)
    assert names[0].startswith("node_1-")
