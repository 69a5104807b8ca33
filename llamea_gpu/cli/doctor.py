"""``llamea-gpu doctor``: what this machine offers, and how to get what it lacks."""

from __future__ import annotations
