"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# how long an example takes, or its making, depends on what else the machine does; a fixture that is shared by
# examples is only read by them
settings.register_profile(
    "uringinfer",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("uringinfer")
