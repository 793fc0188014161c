"""The countries' codes, and names for them that people write. How a country is read is `countries`'."""

from __future__ import annotations

from collections.abc import Mapping

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
