from uringinfer.errors import BudgetError, IntegrityError


def test_a_message_of_a_hostile_files_names_keeps_its_beginning_and_its_end():
    error = IntegrityError("header of 'x': " + "a" * 100_000 + " is no dtype", hint="resume the download")
    assert len(str(error)) < 1100
    assert str(error).startswith("header of 'x': aaa")
    assert str(error).endswith("is no dtype; resume the download")


def test_a_message_of_usual_length_stays_whole():
    message = "b" * 1000
    assert BudgetError(message, floor=1, budget=2).message == message
