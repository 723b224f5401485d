"""A model that asks for given tensors and experts."""


class FakeModel:
    family = "fake"
    experts_per_token = 1

    def __init__(self, *groups, experts=(), ignored=(r".*",)):
        self._groups, self._experts, self._ignored = groups, experts, ignored

    def trunk(self):
        return self._groups

    def expert_layers(self):
        return self._experts

    def ignored_sources(self):
        return self._ignored
