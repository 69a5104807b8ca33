"""From candidates of a run to optimizers that ship: tuned, judged once, written with a card."""

from llamea_gpu.promotion.card import Card, Check
from llamea_gpu.promotion.live import checks_of, enter
from llamea_gpu.promotion.procedure import PromotionSettings, Report, promote

__all__ = ["Card", "Check", "PromotionSettings", "Report", "checks_of", "enter", "promote"]
