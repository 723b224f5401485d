"""Which guesses are worth reading: those of ranks that were right often enough."""

from uringinfer.residency.lookahead import Lookahead


def turn(guesses, experts, chosen):
    worth = guesses.guess(1, experts)
    guesses.judge(1, chosen)
    return worth


def test_every_rank_is_read_at_first():
    assert Lookahead().guess(1, [7, 8, 9]) == [7, 8, 9]


def test_a_rank_that_is_mostly_wrong_is_no_longer_read_and_the_others_are():
    guesses = Lookahead()
    for _ in range(40):
        worth = turn(guesses, [7, 8, 9], {7, 9})
    assert worth == [7, 9]


def test_a_rank_that_becomes_right_is_read_again():
    guesses = Lookahead()
    for _ in range(40):
        turn(guesses, [7], set())
    assert turn(guesses, [7], {7}) == []
    for _ in range(40):
        worth = turn(guesses, [7], {7})
    assert worth == [7]


def test_a_rank_that_is_right_in_two_turns_of_three_is_always_read():
    guesses = Lookahead()
    assert all(turn(guesses, [7], {7} if n % 3 else set()) == [7] for n in range(200))


def test_recall_counts_what_was_guessed_whether_it_was_read_or_not():
    guesses = Lookahead()
    for _ in range(50):
        turn(guesses, [7, 8], {8, 5})
    assert (guesses.demanded, guesses.named) == (100, 50)


def test_a_guess_about_another_layer_is_not_judged():
    guesses = Lookahead()
    for _ in range(50):
        guesses.guess(1, [7])
        guesses.judge(2, {8})
    assert guesses.guess(1, [7]) == [7]
    assert guesses.demanded == 0


def test_early_and_late_guesses_are_judged_apart():
    guesses = Lookahead()
    for _ in range(40):
        guesses.guess(1, [7, 8])
        guesses.guess(1, [9, 7], late=True)
        guesses.judge(1, {7})
    assert guesses.guess(1, [7, 8]) == [7]
    assert guesses.guess(1, [9, 7], late=True) == [7]


def test_recall_is_that_of_the_early_guess():
    guesses = Lookahead()
    guesses.guess(1, [7, 8])
    guesses.guess(1, [5, 6], late=True)
    guesses.judge(1, {5, 6, 7, 9})
    assert (guesses.demanded, guesses.named) == (4, 1)


def test_an_early_guess_must_be_right_more_often_where_a_late_one_follows():
    alone, followed = Lookahead(), Lookahead()
    for n in range(200):
        chosen = {7} if n % 5 < 3 else set()
        turn(alone, [7], chosen)
        followed.guess(1, [7])
        assert followed.guess(1, [7], late=True) == [7]
        followed.judge(1, chosen)
    assert alone.guess(1, [7]) == [7]
    assert followed.guess(1, [7]) == []
