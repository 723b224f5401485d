def pytest_addoption(parser):
    parser.addoption("--fuzz-seconds", type=float, default=40.0, help="how long the slow fuzzing runs")
    parser.addoption("--fuzz-seed", type=int, default=1, help="its first seed")
