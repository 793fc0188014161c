"""What people write for currencies, for nothing to pay and for paying what one likes. How a price is read is `prices`'."""

from __future__ import annotations

from collections.abc import Mapping

_CODES = (
    "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLP CNY COP CRC"
    " CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR"
    " ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK"
    " MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE"
    " SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VES VND VUV WST XAF XCD XOF XPF YER"
    " ZAR ZMW"
)
CURRENCY_CODES = frozenset(_CODES.split())
"""ISO 4217, without funds, metals and codes for testing."""

WORDS_TOO = frozenset({"ALL", "CUP", "GEL", "LAK", "MAD", "MOP", "PEN", "TOP", "TRY"})
"""Codes that are words as well: they count only where the author names them as the feed's currency."""

_UNDIVIDED = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF"
WHOLE_ONLY = frozenset(_UNDIVIDED.split())
"""Currencies without a smaller unit: a sign before three digits can only group them."""

_DOLLARS = ("USD", "AUD", "CAD", "NZD", "HKD", "SGD", "TWD", "MXN", "ARS", "CLP", "COP", "UYU", "JMD", "TTD", "BBD", "BSD", "FJD")
_POUNDS = ("GBP", "EGP", "FKP", "GIP", "LBP", "SHP", "SYP")
_CROWNS = ("SEK", "NOK", "DKK", "ISK")
_PESOS = ("MXN", "ARS", "CLP", "COP", "CUP", "DOP", "PHP", "UYU")
_RUPEES = ("INR", "LKR", "MUR", "NPR", "PKR", "SCR")
_FRANCS = ("CHF", "XAF", "XOF", "XPF", "BIF", "DJF", "GNF", "KMF", "RWF")

CURRENCY_SIGNS: Mapping[str, tuple[str, ...]] = {
    "us$": ("USD",),
    "au$": ("AUD",),
    "a$": ("AUD",),
    "ca$": ("CAD",),
    "c$": ("CAD",),
    "nz$": ("NZD",),
    "hk$": ("HKD",),
    "s$": ("SGD",),
    "nt$": ("TWD",),
    "mx$": ("MXN",),
    "r$": ("BRL",),
    "$": _DOLLARS,
    "＄": _DOLLARS,
    "€": ("EUR",),
    "£": _POUNDS,
    "¥": ("JPY", "CNY"),
    "￥": ("JPY", "CNY"),
    "円": ("JPY",),
    "元": ("CNY", "TWD", "HKD"),
    "원": ("KRW",),
    "₩": ("KRW",),
    "₹": ("INR",),
    "₽": ("RUB",),
    "₺": ("TRY",),
    "₪": ("ILS",),
    "₴": ("UAH",),
    "฿": ("THB",),
    "₫": ("VND",),
    "₱": ("PHP",),
    "₦": ("NGN",),
    "₡": ("CRC",),
    "₲": ("PYG",),
    "₸": ("KZT",),
    "₾": ("GEL",),
    "zł": ("PLN",),
    "kč": ("CZK",),
}
"""Signs, in small letters; one that several currencies share names them all."""

CURRENCY_WORDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("euro", "euros", "eur", "€uro", "evro", "евро", "ευρώ"), ("EUR",)),
    **{
        code.lower(): (code,)
        for code in ("USD", "GBP", "CHF", "CAD", "AUD", "NZD", "JPY", "BRL", "SEK", "NOK", "DKK", "CZK", "HUF", "MXN")
    },
    **dict.fromkeys(("dollar", "dollars", "dólar", "dólares", "dollari", "доллар", "доллара", "долларов"), _DOLLARS),
    **dict.fromkeys(("pound", "pounds", "libra", "libras", "livre sterling", "livres sterling"), _POUNDS),
    **dict.fromkeys(("real", "reais"), ("BRL",)),
    **dict.fromkeys(("zl", "pln", "złoty", "złote", "złotych", "zloty", "zlotych"), ("PLN",)),
    **dict.fromkeys(("koruna", "koruny", "korun"), ("CZK",)),
    **dict.fromkeys(("kr", "krona", "kronor", "krone", "kroner", "króna", "krónur"), _CROWNS),
    **dict.fromkeys(("ft", "forint"), ("HUF",)),
    **dict.fromkeys(("franken", "sfr"), ("CHF",)),
    **dict.fromkeys(("franc", "francs", "franco", "franchi", "fr"), _FRANCS),
    **dict.fromkeys(("peso", "pesos"), _PESOS),
    **dict.fromkeys(("rupee", "rupees", "rs"), _RUPEES),
    **dict.fromkeys(("lei", "leu"), ("RON", "MDL")),
    **dict.fromkeys(("lv", "лв", "лева"), ("BGN",)),
    **dict.fromkeys(("rub", "руб", "рубль", "рубля", "рублей"), ("RUB",)),
    **dict.fromkeys(("грн", "гривень", "гривні"), ("UAH",)),
    **dict.fromkeys(("yen",), ("JPY",)),
    **dict.fromkeys(("yuan", "rmb"), ("CNY",)),
    **dict.fromkeys(("won",), ("KRW",)),
    **dict.fromkeys(("lira", "tl"), ("TRY",)),
    **dict.fromkeys(("shekel", "shekels", "nis"), ("ILS",)),
    **dict.fromkeys(("rand",), ("ZAR",)),
    **dict.fromkeys(("baht",), ("THB",)),
}
"""Words, in small letters, as whole words only."""

FREE = (
    "free",
    "free entry",
    "free admission",
    "free of charge",
    "no charge",
    "gratis",
    "gratuito",
    "gratuita",
    "grátis",
    "gratuitos",
    "gratuit",
    "gratuite",
    "gratuït",
    "entrada libre",
    "acceso libre",
    "entrada livre",
    "entrada franca",
    "entrée libre",
    "accès libre",
    "ingresso libero",
    "ingresso gratuito",
    "kostenlos",
    "kostenfrei",
    "eintritt frei",
    "freier eintritt",
    "wstęp wolny",
    "wstęp bezpłatny",
    "bezpłatne",
    "bezpłatny",
    "bezpłatnie",
    "zdarma",
    "vstup volný",
    "ingyenes",
    "fri entré",
    "gratis entré",
    "vapaa pääsy",
    "ilmainen",
    "бесплатно",
    "вход свободный",
    "безкоштовно",
    "무료",
    "無料",
    "免費",
    "免费",
)
"""Nothing to pay."""

DONATION = (
    "donation",
    "donations",
    "by donation",
    "donativo",
    "donativos",
    "donación",
    "doação",
    "doações",
    "don libre",
    "prix libre",
    "participation libre",
    "offerta libera",
    "spende",
    "spenden",
    "auf spendenbasis",
    "pay what you can",
    "pay what you want",
    "pay as you can",
    "pwyc",
    "pwyw",
    "co łaska",
    "taquilla inversa",
    "a la gorra",
)
"""Everyone pays what they like."""

LEAST = (
    "from",
    "starting at",
    "starting from",
    "at least",
    "desde",
    "a partir de",
    "à partir de",
    "dès",
    "ab",
    "od",
    "da",
    "vanaf",
)
"""Before an amount: the price goes up from there."""

UP_TO = ("up to", "até", "ate", "hasta", "bis", "do", "tot", "till", "jusqu'à")
"""Between two amounts, or before one: the price goes no further."""

BETWEEN = ("to", "a", "à", "al")
"""Between two amounts only: alone they mean other things."""
