"""`make transcripts`: play all transcripts again and write their results; review the diff."""

from tests.scenarios.raft_player import RAFT, play


def main() -> None:
    """Rewrite each file in place."""
    for path in RAFT:
        text = path.read_text()
        played = play(text)
        if played != text:
            path.write_text(played)
            print(f"rewritten: {path.name}")


if __name__ == "__main__":
    main()
