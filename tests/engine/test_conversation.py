"""Conversations: every turn is the whole history rendered anew, and only what is new in it is fed."""

import chat_templates
import pytest
from talking_models import saying, write_talking

from uringinfer.engine.loading import LoadOptions
from uringinfer.engine.opening import open_model
from uringinfer.errors import UsageError
from uringinfer.text.rendering import ChatRequest

TURNS = [
    ("Why is the sky blue?", "Because of the light, 東京."),
    ("And red?", "At dusk:\n\n    it goes a longer way."),
    ("<|im_end|> is text", "so it is 🙂"),
]


@pytest.fixture(scope="module", params=["attention", "window", "recurrent"])
def opened(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp(request.param)
    return open_model(write_talking(directory, chat_templates.CHATML, kind=request.param))


@pytest.fixture(scope="module")
def engine(opened):
    with opened.load(LoadOptions(context=512, chunk=32, snapshots=2)) as engine:
        yield engine


def reply_ids(engine, text, end="<|im_end|>"):
    tokenizer = engine.prompter.tokenizer
    return [*tokenizer.encode(text), tokenizer.id_of(end)]


def rendered(engine, messages, **asked):
    return engine.prompter.render(messages, asked)[0]


def say(conversation, engine, said, answer, **options):
    ids = reply_ids(engine, answer)
    return conversation.say(said, mask=saying(ids), max_tokens=len(ids), **options)


def test_turns_are_fed_what_the_whole_history_is_rendered_to(engine):
    conversation = engine.conversation()
    for said, answer in TURNS:
        generation = say(conversation, engine, said, answer)
        assert generation.text == answer
    history = [
        {"role": role, "content": text}
        for turn in TURNS
        for role, text in zip(("user", "assistant"), turn, strict=True)
    ]
    assert conversation.messages == history
    session = conversation.session
    assert [*session.fed, session.chosen] == engine.prompter.template.encode(
        ChatRequest(history), add_generation_prompt=False
    )[:-1]  # the line break behind the end token belongs to the next turn


def test_the_default_system_text_of_a_template_comes_once(engine):
    conversation = engine.conversation()
    for said, answer in TURNS[:2]:
        say(conversation, engine, said, answer)
    assert engine.prompter.tokenizer.decode(conversation.session.fed).count("You are helpful.") == 1


def test_a_later_turn_feeds_and_reads_no_more_than_an_early_one(engine):
    conversation = engine.conversation()
    first = [say(conversation, engine, "again?", "yes").stats.prompt for _ in range(3)]
    later = [say(conversation, engine, "again?", "yes").stats.prompt for _ in range(7)]
    assert {phase.tokens for phase in (*first[1:], *later)} == {first[1].tokens}
    assert {phase.passes for phase in later} == {1}
    assert len({phase.bytes_read - phase.embedding_bytes for phase in later}) == 1


def test_tokens_stay_as_the_model_chose_them_however_the_text_would_be_split(engine):
    tokenizer = engine.prompter.tokenizer
    spelled = [token for letter in "the dog" for token in tokenizer.encode(letter)]
    assert spelled != tokenizer.encode("the dog")
    ids = [*spelled, tokenizer.id_of("<|im_end|>")]
    conversation = engine.conversation()
    conversation.say("who?", mask=saying(ids), max_tokens=len(ids))
    before = list(conversation.session.fed)
    generation = say(conversation, engine, "why?", "so")
    assert conversation.session.fed[: len(before)] == before
    assert generation.prompt_ids[: len(before)] == before


def test_half_a_character_at_the_end_of_a_reply_does_not_lose_it(engine):
    tokenizer = engine.prompter.tokenizer
    ids = tokenizer.encode("dog 東")[:-1]
    assert not tokenizer.token_bytes(ids[-1]).isascii()
    conversation = engine.conversation()
    assert conversation.say("who?", mask=saying(ids), max_tokens=len(ids)).text.endswith("�")
    before = [*conversation.session.fed, conversation.session.chosen]
    say(conversation, engine, "why?", "so")
    assert conversation.session.fed[: len(before)] == before


def test_a_turn_that_was_cut_short_is_closed(engine):
    conversation = engine.conversation()
    ids = reply_ids(engine, "the lazy dog")
    conversation.say("who?", mask=saying(ids), max_tokens=2)
    assert conversation.messages[-1]["role"] == "assistant"
    say(conversation, engine, "why?", "so")
    assert (
        conversation.session.fed == rendered(engine, conversation.messages[:3]) + reply_ids(engine, "so")[:-1]
    )


@pytest.mark.parametrize("change", ["edit", "undo"])
def test_after_an_edited_or_undone_turn_logits_are_those_of_a_fresh_run(engine, change):
    if engine.kernels.name != "native":
        pytest.skip("other kernels may round a prompt in other chunks differently")
    conversation = engine.conversation(system="Be brief.")
    for said, answer in TURNS:
        say(conversation, engine, said, answer)
    if change == "edit":
        conversation.messages[3] = {"role": "user", "content": "And green?"}
    else:
        conversation.undo()
    say(conversation, engine, "So?", "well")
    session = conversation.session
    fresh = engine.session()
    fresh.feed(session.fed)
    assert session.last_logits.tobytes() == fresh.last_logits.tobytes()


def test_a_reply_can_be_given_anew(engine):
    conversation = engine.conversation()
    say(conversation, engine, "who?", "the dog")
    ids = reply_ids(engine, "the fox")
    assert conversation.reply(mask=saying(ids), max_tokens=len(ids)).text == "the fox"
    assert [message["content"] for message in conversation.messages] == ["who?", "the fox"]


def test_the_system_text_can_be_set_and_taken_away(engine):
    conversation = engine.conversation(system="Be brief.")
    say(conversation, engine, "who?", "the dog")
    conversation.system = "Be kind."
    assert [message["role"] for message in conversation.messages] == ["system", "user", "assistant"]
    conversation.system = None
    assert conversation.system is None and len(conversation.messages) == 2


def test_a_saved_conversation_goes_on_and_feeds_only_what_is_new(engine, tmp_path):
    conversation = engine.conversation(system="Be brief.", variables={"enable_thinking": False})
    say(conversation, engine, *TURNS[0])
    conversation.save(tmp_path / "talk")
    expected = say(conversation, engine, *TURNS[1]).prompt_ids
    loaded = engine.load_conversation(tmp_path / "talk")
    assert loaded.variables == {"enable_thinking": False}
    generation = say(loaded, engine, *TURNS[1])
    assert loaded.messages == conversation.messages
    assert generation.prompt_ids == expected
    assert generation.stats.prompt.tokens < 40 < len(expected)


def test_what_the_format_refuses_was_not_said(engine):
    conversation = engine.conversation()
    say(conversation, engine, *TURNS[0])
    before = list(conversation.messages)
    for wrong in ({"role": "emperor", "content": "x"}, 5, "x" * 4000):
        with pytest.raises(UsageError):
            conversation.say(wrong)
        assert conversation.messages == before


def test_a_stop_text_ends_the_reply_in_front_of_itself_in_the_history_too(engine):
    conversation = engine.conversation()
    generation = say(conversation, engine, "who?", "the lazy dog jumps", stop="lazy")
    assert generation.text == conversation.messages[-1]["content"] == "the "
    say(conversation, engine, "why?", "so")
    assert (
        conversation.session.fed == rendered(engine, conversation.messages[:3]) + reply_ids(engine, "so")[:-1]
    )


def test_a_reply_that_was_interrupted_is_kept_and_one_without_text_was_not_said(engine):
    conversation = engine.conversation()
    with conversation.stream("who?", mask=saying(reply_ids(engine, "the lazy dog"))) as stream:
        piece = next(stream)
    assert stream.generation.finish_reason == "interrupted"
    assert conversation.messages[-1] == {"role": "assistant", "content": piece.text}
    conversation.stream("nothing was asked of this one").close()
    assert len(conversation.messages) == 2


def test_an_abandoned_stream_is_over_before_the_next_turn(engine):
    conversation = engine.conversation()
    for piece in conversation.stream("who?", mask=saying(reply_ids(engine, "the lazy dog"))):
        first = piece.text
        break
    assert conversation.messages[-1]["content"] == first
    say(conversation, engine, "why?", "so")
    assert len(conversation.messages) == 4


def test_a_reply_that_was_cut_short_goes_on_and_one_that_is_whole_does_not(engine):
    ids = reply_ids(engine, "the lazy dog")
    conversation = engine.conversation()
    conversation.say("who?", mask=saying(ids), max_tokens=3)
    rest = ids[3:]
    for _ in conversation.go_on(mask=saying(rest), max_tokens=len(rest)):
        pass
    assert conversation.messages[-1]["content"] == "the lazy dog"
    with pytest.raises(UsageError, match="the last reply is whole"):
        conversation.go_on()


def test_a_tool_that_answers_is_said_as_a_message(engine):
    conversation = engine.conversation()
    say(conversation, engine, "who?", "ask")
    result = {"role": "tool", "content": "42", "tool_call_id": "call_1"}
    say(conversation, engine, [result], "42")
    assert conversation.messages[2] == result


def test_an_engine_without_snapshots_has_the_same_conversation(opened):
    with opened.load(LoadOptions(context=512, chunk=32)) as engine:
        conversation = engine.conversation()
        for said, answer in TURNS:
            say(conversation, engine, said, answer)
        conversation.undo()
        say(conversation, engine, "So?", "well")
        fed = conversation.session.fed
        assert fed == rendered(engine, conversation.messages[:-1]) + reply_ids(engine, "well")[:-1]


def test_options_that_a_turn_does_not_have_are_named(engine):
    with pytest.raises(UsageError, match=r"a turn has no option 'max_token'; did you mean 'max_tokens'\?"):
        engine.conversation().say("hi", max_token=3)


def test_a_model_without_a_chat_format_has_no_conversations(engine):
    prompter = engine.prompter
    template, prompter.template = prompter.template, None
    try:
        with pytest.raises(UsageError, match="has no chat template"):
            engine.conversation()
    finally:
        prompter.template = template
