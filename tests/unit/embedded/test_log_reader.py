from pathlib import Path

from deploy.embedded.files import LogReader


def test_words_are_new_once_also_in_a_log_that_was_emptied_or_is_not_there_yet(tmp_path: Path) -> None:
    log = tmp_path / "nats.log"
    reader = LogReader(log)
    looks = [reader.has_new(b"full")]
    for text in ("full", "", "more", "full\n"):
        with log.open("a") as file:
            file.write(text)
        looks.append(reader.has_new(b"full"))
    log.write_text("")
    looks.append(reader.has_new(b"full"))
    log.write_text("full again\n")
    looks.append(reader.has_new(b"full"))
    assert looks == [False, False, False, False, True, False, True]
