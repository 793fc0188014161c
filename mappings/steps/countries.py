"""The step `country`, and the names that people write for countries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, ClassVar

from babel import Locale, UnknownLocaleError
from babel.languages import get_official_languages
from pydantic import Field, field_validator

from mappings.lookup_table import normaliser
from mappings.measures import OneOrMany, mistake
from mappings.refusals import ReasonCode, Refusal, nearest
from mappings.steps.step import Run, Shown, Step

_PAIRS = (
    "ADAND AEARE AFAFG AGATG AIAIA ALALB AMARM AOAGO AQATA ARARG ASASM ATAUT AUAUS AWABW AXALA AZAZE BABIH BBBRB BDBGD "
    "BEBEL BFBFA BGBGR BHBHR BIBDI BJBEN BLBLM BMBMU BNBRN BOBOL BQBES BRBRA BSBHS BTBTN BVBVT BWBWA BYBLR BZBLZ CACAN "
    "CCCCK CDCOD CFCAF CGCOG CHCHE CICIV CKCOK CLCHL CMCMR CNCHN COCOL CRCRI CUCUB CVCPV CWCUW CXCXR CYCYP CZCZE DEDEU "
    "DJDJI DKDNK DMDMA DODOM DZDZA ECECU EEEST EGEGY EHESH ERERI ESESP ETETH FIFIN FJFJI FKFLK FMFSM FOFRO FRFRA GAGAB "
    "GBGBR GDGRD GEGEO GFGUF GGGGY GHGHA GIGIB GLGRL GMGMB GNGIN GPGLP GQGNQ GRGRC GSSGS GTGTM GUGUM GWGNB GYGUY HKHKG "
    "HMHMD HNHND HRHRV HTHTI HUHUN IDIDN IEIRL ILISR IMIMN ININD IOIOT IQIRQ IRIRN ISISL ITITA JEJEY JMJAM JOJOR JPJPN "
    "KEKEN KGKGZ KHKHM KIKIR KMCOM KNKNA KPPRK KRKOR KWKWT KYCYM KZKAZ LALAO LBLBN LCLCA LILIE LKLKA LRLBR LSLSO LTLTU "
    "LULUX LVLVA LYLBY MAMAR MCMCO MDMDA MEMNE MFMAF MGMDG MHMHL MKMKD MLMLI MMMMR MNMNG MOMAC MPMNP MQMTQ MRMRT MSMSR "
    "MTMLT MUMUS MVMDV MWMWI MXMEX MYMYS MZMOZ NANAM NCNCL NENER NFNFK NGNGA NINIC NLNLD NONOR NPNPL NRNRU NUNIU NZNZL "
    "OMOMN PAPAN PEPER PFPYF PGPNG PHPHL PKPAK PLPOL PMSPM PNPCN PRPRI PSPSE PTPRT PWPLW PYPRY QAQAT REREU ROROU RSSRB "
    "RURUS RWRWA SASAU SBSLB SCSYC SDSDN SESWE SGSGP SHSHN SISVN SJSJM SKSVK SLSLE SMSMR SNSEN SOSOM SRSUR SSSSD STSTP "
    "SVSLV SXSXM SYSYR SZSWZ TCTCA TDTCD TFATF TGTGO THTHA TJTJK TKTKL TLTLS TMTKM TNTUN TOTON TRTUR TTTTO TVTUV TWTWN "
    "TZTZA UAUKR UGUGA UMUMI USUSA UYURY UZUZB VAVAT VCVCT VEVEN VGVGB VIVIR VNVNM VUVUT WFWLF WSWSM YEYEM YTMYT ZAZAF "
    "XKXKX ZMZMB ZWZWE"
)
ALPHA_3: Mapping[str, str] = {pair[2:]: pair[:2] for pair in _PAIRS.split()}
"""ISO 3166-1: the code of two letters for each code of three. Kosovo has none there; XK is what the CLDR and the EU write."""
ALSO_CALLED: Mapping[str, Mapping[str, str]] = {
    "en": {
        "UK": "GB",
        "Great Britain": "GB",
        "England": "GB",
        "Scotland": "GB",
        "Wales": "GB",
        "Northern Ireland": "GB",
        "United States of America": "US",
        "Republic of Ireland": "IE",
        "Holland": "NL",
        "The Netherlands": "NL",
        "Czech Republic": "CZ",
        "Slovak Republic": "SK",
        "Turkey": "TR",
        "Russian Federation": "RU",
        "Republic of Korea": "KR",
        "Korea, Republic of": "KR",
        "Viet Nam": "VN",
        "Hong Kong": "HK",
        "Macao": "MO",
        "Macau": "MO",
        "Ivory Coast": "CI",
        "Cape Verde": "CV",
        "Palestine": "PS",
        "Myanmar": "MM",
        "Burma": "MM",
        "Macedonia": "MK",
        "Swaziland": "SZ",
    },
    "pt": {"Inglaterra": "GB", "Escócia": "GB", "EUA": "US", "Holanda": "NL", "República Checa": "CZ", "Cabo Verde": "CV"},
    "es": {"Inglaterra": "GB", "Escocia": "GB", "EE. UU.": "US", "EEUU": "US", "Holanda": "NL", "República Checa": "CZ"},
    "fr": {"Angleterre": "GB", "Écosse": "GB", "Hollande": "NL", "République tchèque": "CZ", "Etats-Unis d'Amérique": "US"},
    "de": {"England": "GB", "Schottland": "GB", "Großbritannien": "GB", "Holland": "NL", "Tschechische Republik": "CZ"},
    "it": {"Inghilterra": "GB", "Scozia": "GB", "Olanda": "NL", "Repubblica Ceca": "CZ"},
    "pl": {"Anglia": "GB", "Szkocja": "GB", "USA": "US", "Republika Czeska": "CZ"},
}
"""Names beside those of the Unicode CLDR, by language."""
LOCAL = "local"
"""The languages that a country itself uses officially."""
_same = normaliser(("case", "accents", "punctuation", "spaces"))


class Country(Step):
    """Read a country by its name in these languages, or by its ISO code of two or three letters, as the code of two.

    Capitals, accents, spaces and punctuation do not count. The names are those of the Unicode CLDR, and some in wide use.
    """

    name: ClassVar[str] = "country"
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("{country: [en, pt]}", "Alemanha", "DE"),
        Shown("{country: en}", "prt", "PT"),
        Shown("{country: [en, local]}", "España", "ES"),
        Shown("{country: en}", "Czech Republic", "CZ"),
        Shown("{country: en}", "Portugall", ReasonCode.NOT_IN_LOOKUP),
    )
    languages: Annotated[tuple[str, ...], OneOrMany()] = Field(
        alias="country", min_length=1, description="Languages of the names, such as en or pt; local: those of each country."
    )

    @field_validator("languages")
    @classmethod
    def _check_languages(cls, languages: tuple[str, ...]) -> tuple[str, ...]:
        for language in languages:
            if language != LOCAL and not _territories(language):
                raise mistake(
                    f'"{language}" is not a language whose names of countries are known', "write it like en, pt or local"
                )
        return languages

    def function(self) -> Run:
        codes = country_codes(self.languages)
        known = tuple(sorted(set(_names(self.languages))))

        @lru_cache(maxsize=1024)
        def country(text: str) -> str:
            code = codes.get(_same(text))
            if code is None:
                near = nearest(text, [name for name, _ in known])
                wanted = (
                    f'is "{near}" meant?' if near else "the name of a country, or a code such as PT or PRT, would be accepted"
                )
                raise Refusal(ReasonCode.NOT_IN_LOOKUP, wanted, found=text)
            return code

        return country


@lru_cache(maxsize=32)
def country_codes(languages: tuple[str, ...]) -> Mapping[str, str]:
    """Return the code of two letters for each name (as names are compared); a name that two countries share is left out."""
    found: dict[str, set[str]] = {}
    for name, code in _names(languages):
        found.setdefault(_same(name), set()).add(code)
    names = {name: min(codes) for name, codes in found.items() if len(codes) == 1 and name}
    return names | {_same(three): two for three, two in ALPHA_3.items()} | {_same(two): two for two in ALPHA_3.values()}


def _names(languages: Sequence[str]) -> Iterator[tuple[str, str]]:
    for two in ALPHA_3.values():
        for language in languages:
            for each in get_official_languages(two, regional=True) if language == LOCAL else (language,):
                name = _territories(each).get(two)
                if name:
                    yield name, two
    for language in languages:
        yield from ALSO_CALLED.get(language, {}).items()


@lru_cache(maxsize=512)
def _territories(language: str) -> Mapping[str, str]:
    try:
        return dict(Locale.parse(language.replace("-", "_")).territories)
    except (UnknownLocaleError, ValueError):
        return {}
