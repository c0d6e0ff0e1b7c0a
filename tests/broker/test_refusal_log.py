"""What a client is refused for is told, but a flood of it does not fill the disk."""

from kafkalite.server import RefusalLog


def test_a_flood_of_refusals_is_one_line_a_second_and_a_count() -> None:
    lines: list[str] = []
    refusals = RefusalLog(lines.append)
    for now_ms in range(5_000, 7_500, 10):
        refusals.write(f"refused at {now_ms}", now_ms)
    assert lines == [
        "refused at 5000",
        "refused at 6000 (and 99 more since the last such line)",
        "refused at 7000 (and 99 more since the last such line)",
    ]
