r"""Golds and the placeholders of missing ones: one table for files and rewards (R16).

The table holds only what programs, spreadsheets and annotators write for a missing answer. It leaves out words that are
also answers: `none`, `unknown`, `undefined`, `DNE`, `no solution`, `\infty`, and `Na`, which is sodium. `unbekannt` and
the like are in it, because files in these languages write them where English files write `N/A`. The words `无` and
`нет` (no) are answers and left out.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Gold(NamedTuple):
    """A label or true answer to compare answers with (R7).

    If its question asks for a percentage, the percent sign is optional: for the gold 30, both `30` and `30%` are right.
    """

    text: str
    in_percent: bool = False
    """Whether the question asks for a percentage. If so, an answer may have a percent sign that the gold lacks."""


_LONGEST = 60
"""Longest label that may be a placeholder, in characters."""
_IN_OTHER_LANGUAGES = (
    r"k\. ?a\.|keine (?:angaben?|antwort)|unbekannt|nicht (?:verfügbar|vorhanden|gefunden)"  # German
    r"|inconnue?|non (?:disponible|trouvée?|fournie?)|(?:pas de|sans) réponse"  # French
    r"|desconocid[oa]|no (?:disponible|encontrad[oa])|sin (?:respuesta|datos)"  # Spanish
    r"|desconhecid[oa]|não (?:disponível|encontrad[oa])|sem resposta"  # Portuguese
    r"|sconosciut[oa]|non (?:disponibile|trovat[oa])|nessuna risposta"  # Italian
    r"|onbekend|n\.v\.t\.?|geen antwoord|okän[dt]|ukjent|ukendt|brak (?:danych|odpowiedzi)|bilinmiyor"
    r"|неизвестно|н/д|нет (?:данных|ответа)|не найдено|невідомо"
    r"|未知|不明|暂无(?:答案)?|無答案|无答案|没有答案|未找到|未提供|(?:答案)?略|见解析|見解析"
    r"|不詳|未回答|無回答|(?:解答|回答|データ)なし|該当なし|미상|(?:정답|답|데이터) ?없음|알 ?수 ?없음"
)
_PLACEHOLDER = re.compile(
    r"(?:|NA|NaT|<NA>|<null>|__NoCorrectAnswer__|Err:\d{3}|(?i:loading)\.{3}"
    # Errors of spreadsheets in many languages: `#REF!`, `#DIV/0!`, `#WERT!`, `#¡VALOR!`, `#ЗНАЧ!`, `#NV`.
    r"|\#+|\# ?N/?[AVDB]|\#Н/Д|\#(?:REF|NAME|VALUE|NULL|NUM|GETTING_DATA)|\#[¡¿]?[A-ZÀ-ÝА-Я0/]+[!?]"
    r"|[\s$({\[]*(?:\\text\w*\{)?(?:None|(?i:n/a|n\.a\.?|nan|null|tbd|todo|proof"
    r"|(?:answer )?not[ _-]?found|not (?:available|applicable|provided)"
    r"|no (?:final )?answer(?: (?:found|given|provided|available))?"
    r"|see (?:the )?(?:solution|above|below|text|figure)"
    r"|\?+|-+|\.{2,}|…|[–—]+"
    rf"|{_IN_OTHER_LANGUAGES}))[\s.:。$)}}\]]*)"
)


def is_placeholder(label: str) -> bool:
    """Return whether a label stands for a missing answer, as ``N/A`` or ``#REF!`` do.

    No response matches such a label.
    """
    label = label.strip()
    return len(label) <= _LONGEST and _PLACEHOLDER.fullmatch(label) is not None
