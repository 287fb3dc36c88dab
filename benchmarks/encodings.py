"""How often the encoding of a short text that states none is guessed right.

    python -m benchmarks.encodings [--texts N] [--show N]

Texts of one to twelve words of 24 languages, drawn from sentences written for this, each in an
encoding that is usual for its language; a text is right if what is decoded is what was written.
Exit 1: less than 98 % right.
"""

import argparse
import random
import sys
from collections import Counter, defaultdict

from contrasent.documents.encodings import decode

GOAL = 0.98
LANGUAGES = {
    "de": (("cp1252", "latin-1", "iso8859-15"), (
        "Die Bücherei in Zürich öffnet am Dienstag um zehn Uhr",
        "Für Käse und Brötchen zahlen Gäste fünf Euro",
        "Größe und Gewicht prüft der Förster nächste Woche",
        "Müller, Straße und Höfe übernehmen die Schlüssel",
        "Das Gemüse wächst hinter den Häusern über dem Fluß",
    )),
    "fr": (("cp1252", "latin-1", "iso8859-15"), (
        "Le café près de la gare est fermé à midi",
        "Une forêt brûlée où les élèves ont déjà été",
        "Le français naïf rêvait d'un château où il gelait",
        "Les clés sont à la réception, mais ça dépend de la journée",
        "Noël approche et la neige tombe sur l'hôtel",
    )),
    "es": (("cp1252", "latin-1"), (
        "El niño de Málaga comió piñas en la montaña",
        "¿Dónde está la estación? Mañana sale el tren",
        "La biblioteca cerrará más temprano este miércoles",
        "Señor Núñez, su pedido llegó ayer según el camión",
        "Además compró jamón y limón para el año nuevo",
    )),
    "pt": (("cp1252", "latin-1"), (
        "São Paulo não é a capital, mas a estação é grande",
        "As crianças estão à espera do avião há três horas",
        "O coração da região fica além das montanhas",
        "Você já viu a exposição no pavilhão de Belém?",
        "A reunião começa às oito e é só para sócios",
    )),
    "sv": (("cp1252", "latin-1"), (
        "Biblioteket är stängt på måndagar och lördagar",
        "Böcker får lånas i tre veckor från Göteborg",
        "Kaffe serveras efter mötet på Västra gatan",
        "Sjön är så djup att båten måste ankra längre ut",
        "Hälsningar från Åsa, Örjan och deras små hästar",
    )),
    "en": (("cp1252",), (
        "The “blue” door isn’t open – ring the bell",
        "A café near the gate sells crème brûlée",
        "Mr Núñez’s résumé costs £40 or €50",
        "It’s 20 °C today and the façade dries",
        "Anne said: “I don’t know… yet”",
    )),
    "pl": (("cp1250", "iso8859-2"), (
        "Łódź leży nad rzeką, której już prawie nie widać",
        "Książki można wypożyczać na trzy tygodnie w każdą środę",
        "Proszę zamknąć drzwi, gdyż będzie później zimno",
        "Zażółć gęślą jaźń powiedział żołnierz z Białegostoku",
        "Jeśli chcesz, możesz przyjść w następną niedzielę",
    )),
    "cs": (("cp1250", "iso8859-2"), (
        "Příliš žluťoučký kůň úpěl ďábelské ódy",
        "Knihovna je v pondělí zavřená, přijďte ve čtvrtek",
        "Děti šly přes řeku, když začalo pršet",
        "Můžete nám poslat účet ještě dnes večer?",
        "Náměstí v Třebíči bylo plné lidí a světel",
    )),
    "ru": (("cp1251", "koi8-r"), (
        "Библиотека закрыта по понедельникам до десяти часов",
        "Книги можно взять на три недели без залога",
        "Поезд отправляется завтра утром от второй платформы",
        "Пожалуйста, закройте дверь и выключите свет",
        "Вода в реке поднялась после долгого дождя",
    )),
    "el": (("cp1253", "iso8859-7"), (
        "Η βιβλιοθήκη είναι κλειστή κάθε Δευτέρα το πρωί",
        "Τα βιβλία δανείζονται για τρεις εβδομάδες",
        "Το τρένο φεύγει αύριο από τον δεύτερο σταθμό",
        "Παρακαλώ κλείστε την πόρτα και σβήστε το φως",
        "Η θάλασσα ήταν ήρεμη μετά τη μεγάλη βροχή",
    )),
    "ja": (("cp932", "euc_jp"), (
        "図書館は月曜日に休みます。本は三週間借りられます",
        "明日の朝、電車は二番線から出発します",
        "会議のあとでコーヒーを出します。ドアを閉めてください",
        "雨のあと川の水が増えました。橋を渡らないでください",
        "请の代わりにお願いしますと書いてください",
    )),
    "zh": (("gb18030", "big5"), (
        "大人在家中看書，小孩在外面玩水。今天天氣很好",
        "我們明天早上坐車去北方的城市，下午回來",
        "請把門打開，水已經很多了。他們都不知道",
        "老人每天在公園走路，然後和朋友一起喝茶",
        "這本書可以借三個星期，不用付錢",
    )),
    "tr": (("cp1254", "iso8859-9",), (
        "Kütüphane pazartesi günleri kapalıdır",
        "Kitaplar üç hafta için ödünç alınabilir",
        "Lütfen kapıyı kapatın ve ışığı söndürün",
        "Yarın sabah tren ikinci perondan kalkıyor",
        "Şehirdeki köprü çok eski ve geniş değil",
    )),
    "hu": (("cp1250", "iso8859-2",), (
        "A könyvtár hétfőn zárva van",
        "A könyveket három hétre lehet kölcsönözni",
        "Kérjük, csukja be az ajtót és oltsa le a villanyt",
        "Holnap reggel a vonat a második vágányról indul",
        "Az eső után megáradt a folyó és tűnődő őrök jöttek",
    )),
    "it": (("cp1252", "latin-1",), (
        "La biblioteca è chiusa lunedì e martedì",
        "Perché non può venire più tardi in città",
        "Il caffè è già finito, però c'è il tè",
        "La qualità della società è così",
        "Venerdì andrò all'università",
    )),
    "da": (("cp1252", "latin-1",), (
        "Biblioteket er lukket om mandagen på grund af påske",
        "Bøger kan lånes i tre uger fra København",
        "Luk døren og sluk lyset når I går",
        "Toget kører i morgen tidlig fra spor to på Ærø",
        "Søen er så dyb at båden må ankre længere ude",
    )),
    "fi": (("cp1252", "iso8859-15",), (
        "Kirjasto on suljettu maanantaisin ja pääsiäisenä",
        "Kirjoja saa lainata kolmeksi viikoksi täältä",
        "Sulkekaa ovi ja sammuttakaa valot lähtiessänne",
        "Huomenna juna lähtee raiteelta yksi kello yö",
        "Järven jää kestää jo kävellä",
    )),
    "nl": (("cp1252",), (
        "De bibliotheek is geopend vanaf één uur",
        "Vóór maandag beëindigen wij de coördinatie",
        "Het café in België heeft crème en patiënten",
        "Zij reëel ruïne geïnteresseerd",
        "De prijs is €50 – of “iets” meer",
    )),
    "ko": (("cp949", "euc_kr",), (
        "도서관은 월요일에 쉽니다",
        "책은 삼 주 동안 빌릴 수 있습니다",
        "문을 닫고 불을 꺼 주세요",
        "내일 아침 기차는 이번 승강장에서 출발합니다",
        "비가 온 뒤에 강물이 불었습니다",
    )),
    "he": (("cp1255",), (
        "הספרייה סגורה בימי שני",
        "אפשר לשאול ספרים לשלושה שבועות",
        "נא לסגור את הדלת ולכבות את האור",
        "מחר בבוקר הרכבת יוצאת מרציף שתיים",
        "אחרי הגשם עלו מי הנהר",
    )),
    "uk": (("cp1251", "koi8-u",), (
        "Бібліотека зачинена щопонеділка",
        "Книжки можна взяти на три тижні",
        "Будь ласка, зачиніть двері та вимкніть світло",
        "Завтра вранці потяг вирушає з другої колії",
        "Після дощу вода в річці піднялася",
    )),
    "ar": (("cp1256",), (
        "المكتبة مغلقة يوم الاثنين",
        "يمكن استعارة الكتب لمدة ثلاثة أسابيع",
        "من فضلك أغلق الباب وأطفئ النور",
        "غدا صباحا يغادر القطار من الرصيف الثاني",
        "بعد المطر ارتفع ماء النهر",
    )),
    "ro": (("cp1250", "iso8859-2",), (
        "Biblioteca este închisă lunea şi marţea",
        "Cărţile se împrumută pentru trei săptămâni",
        "Vă rugăm să închideţi uşa şi lumina",
        "Mâine dimineaţă trenul pleacă de la linia doi",
        "După ploaie apa râului a crescut",
    )),
    "no": (("latin-1", "cp1252",), (
        "Biblioteket er stengt på mandager",
        "Bøker kan lånes i tre uker fra Tromsø",
        "Lukk døren når dere går, og slå av lyset",
        "Toget går i morgen tidlig fra spor én",
        "Etter regnet steg vannet i åen, så å si",
    )),
}  # fmt: skip
TABLE = str.maketrans(  # of what is written above in traditional characters, the simple ones
    "書氣們車東請門開經個錢後來這裡還們", "书气们车东请门开经个钱后来这里还们"
)


def texts(count: int) -> list[tuple[str, str, str]]:
    """Language, encoding and text; each has a letter beyond ASCII."""
    draw, made = random.Random(0), list[tuple[str, str, str]]()
    while len(made) < count:
        language = list(LANGUAGES)[len(made) % len(LANGUAGES)]
        encodings, sentences = LANGUAGES[language]
        encoding, sentence = draw.choice(encodings), draw.choice(sentences)
        if encoding == "gb18030":
            sentence = sentence.translate(TABLE)
        words = list(sentence) if language in ("ja", "zh") else sentence.split()
        length = draw.randint(1, 12) * (1 if len(words) < 20 else 2)
        start = draw.randint(0, max(0, len(words) - length))
        part = words[start : start + length]
        text = ("" if language in ("ja", "zh") else " ").join(part)
        if language in ("ja", "zh") and len(text) < 4:
            continue
        try:
            if text.isascii() or text.encode(encoding).decode(encoding) != text:
                continue
        except UnicodeEncodeError:
            continue
        made.append((language, encoding, text))
    return made


def main() -> None:
    """Guess and count."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--show", type=int, default=3, help="wrong ones of each language")
    arguments = parser.parse_args()
    right, wrong, total = Counter[str](), defaultdict[str, list[str]](list), Counter[str]()
    for language, encoding, text in texts(arguments.texts):
        found, name = decode(text.encode(encoding))[:2]
        total[language] += 1
        if found == text:
            right[language] += 1
        else:
            wrong[language].append(f"{text!r} of {encoding} as {name}: {found!r}")
    for language, count in total.items():
        print(f"{language} {right[language]:4} of {count:4}")
        for line in wrong[language][: arguments.show]:
            print(f"    {line}")
    share = sum(right.values()) / sum(total.values())
    print(f"{100 * share:.1f} % right")
    sys.exit(share < GOAL)


if __name__ == "__main__":
    main()
