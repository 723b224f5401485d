"""A loaded model, its conversations, and how a model is loaded.

`opening.open_model` finds and opens a model, `OpenModel.load` plans its memory and fills it, the `Engine`
that comes out makes `Session`s and text.
"""
