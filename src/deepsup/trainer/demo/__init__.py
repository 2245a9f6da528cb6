"""Runs -> the glass box: a page on which a person draws and sees what each layer of the nets answers."""

from deepsup.trainer.demo._demo_page import write_demo

__all__ = ["write_demo"]
