"""The public functions and types, and what commands and servers need besides: all that they may import.

`uringinfer` itself re-exports the names that most people need. A name is imported from where it is defined
when it is first used, so that a command that needs no model begins at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uringinfer.api.files import info as info
    from uringinfer.api.files import simulate as simulate
    from uringinfer.api.functions import LoadKeywords as LoadKeywords
    from uringinfer.api.functions import PlanKeywords as PlanKeywords
    from uringinfer.api.functions import load as load
    from uringinfer.api.functions import measure_rates as measure_rates
    from uringinfer.api.functions import plan as plan
    from uringinfer.api.functions import tokenize as tokenize
    from uringinfer.api.functions import write_run_page as write_run_page
    from uringinfer.bench.measure import Measurement as Measurement
    from uringinfer.bench.roofline import Roofline as Roofline
    from uringinfer.bench.roofline import roofline as roofline
    from uringinfer.bench.sweep import Bench as Bench
    from uringinfer.bench.sweep import Refusal as Refusal
    from uringinfer.bench.sweep import Result as BenchResult
    from uringinfer.bench.sweep import Setting as Setting
    from uringinfer.bench.sweep import run_bench as run_bench
    from uringinfer.bench.sweep import settings_of as settings_of
    from uringinfer.bench.workload import Workload as Workload
    from uringinfer.bench.workload import workloads_of as workloads_of
    from uringinfer.build_facts import BuildFacts as BuildFacts
    from uringinfer.build_facts import read_build_facts as read_build_facts
    from uringinfer.container import Container as Container
    from uringinfer.container.checksum import PROVIDER as CHECKSUM_LIBRARY
    from uringinfer.container.checksum import check_rate as check_rate
    from uringinfer.container.kind_errors import KindError as KindError
    from uringinfer.container.manifest import Manifest as Manifest
    from uringinfer.container.summary import GroupSummary as GroupSummary
    from uringinfer.container.summary import Summary as Summary
    from uringinfer.container.summary import TensorSummary as TensorSummary
    from uringinfer.container.summary import groups as groups
    from uringinfer.container.summary import summarise as summarise
    from uringinfer.container.summary import tensors as tensors
    from uringinfer.container.verifier import VerifyReport as VerifyReport
    from uringinfer.diagnosis import READ_SECONDS as READ_SECONDS
    from uringinfer.diagnosis import Finding as Finding
    from uringinfer.diagnosis import Status as Status
    from uringinfer.diagnosis import diagnose as diagnose
    from uringinfer.diagnosis import diagnose as doctor
    from uringinfer.diagnosis.read_clock import clock_reads as clock_reads
    from uringinfer.engine.conversation import Conversation as Conversation
    from uringinfer.engine.draft_model import load_with_draft as load_with_draft
    from uringinfer.engine.engine import Engine as Engine
    from uringinfer.engine.generation import Generation as Generation
    from uringinfer.engine.generation import GenerationOptions as GenerationOptions
    from uringinfer.engine.generation import Listener as Listener
    from uringinfer.engine.generation import Piece as Piece
    from uringinfer.engine.job import JobResult as JobResult
    from uringinfer.engine.job import run_job as run_job
    from uringinfer.engine.keywords import GenerateKeywords as GenerateKeywords
    from uringinfer.engine.keywords import TurnKeywords as TurnKeywords
    from uringinfer.engine.keywords import turn_options as turn_options
    from uringinfer.engine.load_options import DEFAULT_CHUNK as DEFAULT_CHUNK
    from uringinfer.engine.load_options import DEFAULT_LOOKAHEAD as DEFAULT_LOOKAHEAD
    from uringinfer.engine.load_options import LoadOptions as LoadOptions
    from uringinfer.engine.loading import OpenModel as OpenModel
    from uringinfer.engine.loading import Progress as Progress
    from uringinfer.engine.logits_file import LogitsFile as LogitsFile
    from uringinfer.engine.opening import open_model as open_model
    from uringinfer.engine.opening import open_to_plan as open_to_plan
    from uringinfer.engine.outlook import Choice as Choice
    from uringinfer.engine.outlook import Outlook as Outlook
    from uringinfer.engine.outlook import choices_of as choices_of
    from uringinfer.engine.outlook import outlook_of as outlook_of
    from uringinfer.engine.outlook import sweep as sweep
    from uringinfer.engine.outputs import check_writable as check_writable
    from uringinfer.engine.prompt import Prompter as Prompter
    from uringinfer.engine.prompts_file import Asked as Asked
    from uringinfer.engine.prompts_file import answered_before as answered_before
    from uringinfer.engine.prompts_file import prompt_line as prompt_line
    from uringinfer.engine.prompts_file import read_prompts as read_prompts
    from uringinfer.engine.run import Stream as Stream
    from uringinfer.engine.session import Session as Session
    from uringinfer.engine.session_file import SessionHeader as SessionHeader
    from uringinfer.engine.session_file import read_header as read_header
    from uringinfer.engine.source import find_container as find_container
    from uringinfer.environment import state_directory as state_directory
    from uringinfer.errors import BudgetError as BudgetError
    from uringinfer.errors import EnvironmentError_ as EnvironmentError_
    from uringinfer.errors import IntegrityError as IntegrityError
    from uringinfer.errors import Interrupted as Interrupted
    from uringinfer.errors import UnsupportedModelError as UnsupportedModelError
    from uringinfer.errors import UringinferError as UringinferError
    from uringinfer.errors import UsageError as UsageError
    from uringinfer.models import model_from_config as model_from_config
    from uringinfer.models.verification import verify as verify
    from uringinfer.packing import PackReport as PackReport
    from uringinfer.packing import pack as pack
    from uringinfer.packing.layout import SegmentSize as SegmentSize
    from uringinfer.packing.layout import as_segment_size as as_segment_size
    from uringinfer.packing.packer import MAX_JOBS as MAX_JOBS
    from uringinfer.packing.recipe import KEEP as KEEP
    from uringinfer.packing.recipe import MAX_SEED as MAX_SEED
    from uringinfer.packing.recipe import parse_rule as parse_rule
    from uringinfer.packing.reclaim import check_asked as check_asked
    from uringinfer.packing.sharder import ShardReport as ShardReport
    from uringinfer.packing.sharder import shard as shard
    from uringinfer.packing.source_checksums import require_source as require_source
    from uringinfer.packing.staging import partial_path as partial_path
    from uringinfer.pages.run_page import write_page as write_page
    from uringinfer.perplexity import SHORTEST_WINDOW as SHORTEST_WINDOW
    from uringinfer.perplexity import Comparison as Comparison
    from uringinfer.perplexity import PerplexityResult as PerplexityResult
    from uringinfer.perplexity import check_same_model as check_same_model
    from uringinfer.perplexity import count_windows as count_windows
    from uringinfer.perplexity import measure_perplexity as measure_perplexity
    from uringinfer.perplexity import score_room as score_room
    from uringinfer.planning.machine import Machine as Machine
    from uringinfer.planning.planner import Placement as Placement
    from uringinfer.planning.presets import PRESETS as PRESETS
    from uringinfer.planning.rates import Rates as Rates
    from uringinfer.probing import Conditions as ProbeConditions
    from uringinfer.probing import Mode as ProbeMode
    from uringinfer.probing import ProbeReport as ProbeReport
    from uringinfer.probing import Row as ProbeRow
    from uringinfer.probing import SavedRate as SavedRate
    from uringinfer.probing import probe as probe
    from uringinfer.probing import save_rate as save_rate
    from uringinfer.probing import saved_rate as saved_rate
    from uringinfer.residency.policies import DEFAULT_POLICY as DEFAULT_POLICY
    from uringinfer.residency.policies import ONLINE_POLICIES as ONLINE_POLICIES
    from uringinfer.residency.policies import POLICIES as POLICIES
    from uringinfer.residency.simulate import SimulationResult as SimulationResult
    from uringinfer.residency.simulate import slots_of as slots_of
    from uringinfer.residency.trace import Trace as Trace
    from uringinfer.residency.trace import TraceWriter as TraceWriter
    from uringinfer.residency.trace import read_trace as read_trace
    from uringinfer.storage.probe_file import random_file as random_file
    from uringinfer.storage.reader import ReaderKind as ReaderKind
    from uringinfer.storage.regular import read_regular as read_regular
    from uringinfer.text.logprobs import TokenLogprobs as TokenLogprobs
    from uringinfer.text.rendering import ChatRequest as ChatRequest
    from uringinfer.text.rendering import Message as Message
    from uringinfer.text.sampling import SamplingOptions as SamplingOptions
    from uringinfer.text.tokenizer import Tokenizer as Tokenizer
    from uringinfer.units import as_bytes as as_bytes
    from uringinfer.units import counted as counted
    from uringinfer.units import format_rate as format_rate
    from uringinfer.units import format_size as format_size
    from uringinfer.units import parse_rate as parse_rate
    from uringinfer.units import parse_size as parse_size

_HOMES = {
    "uringinfer.environment": "state_directory",
    "uringinfer.engine.prompts_file": "Asked answered_before prompt_line read_prompts",
    "uringinfer.engine.job": "JobResult run_job",
    "uringinfer.engine.draft_model": "load_with_draft",
    "uringinfer.packing.source_checksums": "require_source",
    "uringinfer.api.files": "info simulate",
    "uringinfer.api.functions": "LoadKeywords PlanKeywords load measure_rates plan tokenize write_run_page",
    "uringinfer.bench.measure": "Measurement",
    "uringinfer.bench.roofline": "Roofline roofline",
    "uringinfer.bench.sweep": "Bench Refusal Result=BenchResult Setting run_bench settings_of",
    "uringinfer.bench.workload": "Workload workloads_of",
    "uringinfer.build_facts": "BuildFacts read_build_facts",
    "uringinfer.container": "Container",
    "uringinfer.container.checksum": "PROVIDER=CHECKSUM_LIBRARY check_rate",
    "uringinfer.container.kind_errors": "KindError",
    "uringinfer.container.manifest": "Manifest",
    "uringinfer.container.summary": "GroupSummary Summary TensorSummary groups summarise tensors",
    "uringinfer.container.verifier": "VerifyReport",
    "uringinfer.diagnosis": "Finding READ_SECONDS Status diagnose diagnose=doctor",
    "uringinfer.diagnosis.read_clock": "clock_reads",
    "uringinfer.engine.conversation": "Conversation",
    "uringinfer.engine.engine": "Engine",
    "uringinfer.engine.generation": "Generation GenerationOptions Listener Piece",
    "uringinfer.engine.keywords": "turn_options GenerateKeywords TurnKeywords",
    "uringinfer.engine.load_options": "DEFAULT_CHUNK DEFAULT_LOOKAHEAD LoadOptions",
    "uringinfer.engine.loading": "OpenModel Progress",
    "uringinfer.engine.logits_file": "LogitsFile",
    "uringinfer.engine.opening": "open_model open_to_plan",
    "uringinfer.engine.outlook": "Choice Outlook choices_of outlook_of sweep",
    "uringinfer.engine.outputs": "check_writable",
    "uringinfer.engine.prompt": "Prompter",
    "uringinfer.engine.run": "Stream",
    "uringinfer.engine.session": "Session",
    "uringinfer.engine.session_file": "SessionHeader read_header",
    "uringinfer.engine.source": "find_container",
    "uringinfer.errors": (
        "BudgetError EnvironmentError_ IntegrityError Interrupted UnsupportedModelError "
        "UringinferError UsageError"
    ),
    "uringinfer.models": "model_from_config",
    "uringinfer.models.verification": "verify",
    "uringinfer.packing": "PackReport pack",
    "uringinfer.packing.layout": "SegmentSize as_segment_size",
    "uringinfer.packing.packer": "MAX_JOBS",
    "uringinfer.packing.recipe": "KEEP MAX_SEED parse_rule",
    "uringinfer.packing.reclaim": "check_asked",
    "uringinfer.packing.sharder": "ShardReport shard",
    "uringinfer.packing.staging": "partial_path",
    "uringinfer.pages.run_page": "write_page",
    "uringinfer.perplexity": (
        "Comparison PerplexityResult SHORTEST_WINDOW check_same_model count_windows measure_perplexity "
        "score_room"
    ),
    "uringinfer.planning.machine": "Machine",
    "uringinfer.planning.planner": "Placement",
    "uringinfer.planning.presets": "PRESETS",
    "uringinfer.planning.rates": "Rates",
    "uringinfer.probing": (
        "Conditions=ProbeConditions Mode=ProbeMode ProbeReport Row=ProbeRow SavedRate probe "
        "save_rate saved_rate"
    ),
    "uringinfer.residency.policies": "DEFAULT_POLICY ONLINE_POLICIES POLICIES",
    "uringinfer.residency.simulate": "SimulationResult slots_of",
    "uringinfer.residency.trace": "Trace TraceWriter read_trace",
    "uringinfer.storage.probe_file": "random_file",
    "uringinfer.storage.reader": "ReaderKind",
    "uringinfer.storage.regular": "read_regular",
    "uringinfer.text.logprobs": "TokenLogprobs",
    "uringinfer.text.rendering": "ChatRequest Message",
    "uringinfer.text.sampling": "SamplingOptions",
    "uringinfer.text.tokenizer": "Tokenizer",
    "uringinfer.units": "as_bytes counted format_rate format_size parse_rate parse_size",
}
"""Where each name is defined; NAME=ALIAS under another name."""
_PLACES = {
    name.rpartition("=")[2]: (module, name.partition("=")[0])
    for module, names in _HOMES.items()
    for name in names.split()
}

__all__ = ["CHECKSUM_LIBRARY", "BenchResult", "ProbeConditions", "ProbeMode", "ProbeRow", "doctor"]
__all__ += [name for name in _PLACES if name not in __all__]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    module, original = _PLACES[name]
    value = getattr(importlib.import_module(module), original)
    globals()[name] = value
    return value
