"""Words that say little of a text, by language; also what a language is recognised by."""

_LISTS = {
    "english": """
        a about above after again against all also am an and any are as at be because been before
        being below between both but by can cannot could did do does doing down during each either
        else ever every few for from further had has have having he her here hers herself him
        himself his how however i if in into is it its itself just may me might more most must my
        myself no nor not now of off on once only or other our ours ourselves out over own same
        shall she should so some such than that the their theirs them themselves then there these
        they this those through thus to too under until up upon us very was we were what when
        where which while who whom whose why will with would you your yours yourself""",
    "german": """
        aber alle allem allen aller alles als also am an andere anderen auch auf aus bei beim bin
        bis bist da damit dann das dass dein dem den denn der des dessen die dies diese diesem
        diesen dieser dieses doch dort du durch ein eine einem einen einer eines er es etwas euch
        für gegen hab habe haben hat hatte hatten hier hin hinter ich ihm ihn ihnen ihr ihre ihrem
        ihren ihrer im in indem ins ist ja jede jedem jeden jeder jedes jetzt kann kein keine
        keinem keinen keiner können könnte man mein mich mir mit muss müssen nach nicht nichts
        noch nun nur ob oder ohne sehr sein seine seinem seinen seiner selbst sich sie sind so
        soll sollte sondern sonst über um und uns unser unter viel vom von vor war waren was weil
        welche welcher wenn wer werde werden wie wieder will wir wird wo wollen wurde wurden zu
        zum zur zwar zwischen""",
    "dutch": """
        aan al alles als andere ben bij daar dan dat de der deze die dit doch doen door dus een
        eens en er ge geen geweest haar had heb hebben heeft hem het hier hij hoe hun iemand iets
        ik in is ja je kan kon kunnen maar me meer men met mij mijn moet na naar niet niets nog nu
        of om omdat onder ons ook op over reeds te tegen toch toen tot u uit uw van veel voor want
        waren was wat werd wezen wie wil worden wordt zal ze zelf zich zij zijn zo zonder zou""",
    "french": """
        ai alors au aucun aux avait avant avec avez avoir avons c ce cela ces cet cette ceux
        chaque ci comme comment d dans de depuis des donc dont du elle elles en encore entre es
        est et étaient était été être eu fait font il ils j je l la le les leur leurs lui m ma
        mais me même mes mon n ne ni nos notre nous on ont ou où par pas peu peut plus pour
        pourquoi qu quand que quel quelle quelles quels qui s sa sans se sera ses si sien son sont
        sous sur t ta tandis te tes ton tous tout toute toutes très tu un une vos votre vous y""",
    "spanish": """
        a al algo algunas algunos ante antes aunque bien cada como con contra cual cuando de del
        desde donde dos durante e el él ella ellas ellos en entre era eran eres es esa esas ese
        eso esos esta está estaba están estas este esto estos fue fueron ha había han hasta hay he
        la las le les lo los más me mi mis mientras muy nada ni no nos nosotros nuestra nuestro o
        os otra otras otro otros para pero poco por porque puede que qué quien se sea según ser si
        sí sido siempre sin sobre solo son su sus también tan tanto te tiene tienen todo todos tu
        tus un una uno unos usted y ya yo""",
    "portuguese": """
        a à ao aos as às até com como da das de dela dele deles depois do dos e é ela elas ele
        eles em entre era eram essa essas esse esses esta está estão estas este estes eu foi foram
        há isso isto já lhe lhes mais mas me mesmo meu minha muito na não nas nem no nos nós nossa
        nosso num numa o os ou para pela pelas pelo pelos por porque pode qual quando que quem são
        se seja sem ser será seu seus só sua suas também te tem têm ter teu teve tu tua um uma
        você vocês vos""",
    "italian": """
        a ad agli ai al alla alle allo anche avere aveva c che chi ci come con contro cui da dagli
        dai dal dalla dalle dallo degli dei del dell della delle dello di dove e è ed era erano
        essere fa fra gli ha hai hanno ho i il in io l la le lei li lo loro lui ma me mi mia mio
        molto ne negli nei nel nell nella nelle nello noi non nostro o ogni per perché più può
        quale quando quanto quella quelle quelli quello questa queste questi questo se sei senza
        si sia siamo sono sta su sua sue sui sul sulla sulle suo suoi ti tra tu tutti tutto un una
        uno vi voi""",
    "russian": """
        а без более бы был была были было быть в вам вас весь во вот все всего всех вы где да даже
        для до его ее её если есть еще ещё же за здесь и из или им их к как какой ко когда кто ли
        либо мне может можно мой мы на над надо наш не него нее нет ни них но ну о об однако он
        она они оно от очень по под при с сам свою себя со так также такой там те тем то того тоже
        той только том тот ты у уже хотя чего чей чем что чтобы чье эта эти это этого этой этом
        этот я""",
    "swedish": """
        alla allt att av bara blev bli blir blivit de dem den denna deras dess dessa det detta dig
        din dina ditt du där då efter ej eller en er era ett från för ha hade han hans har henne
        hennes hon honom hur här i icke ingen inom inte jag ju kan kunde man med mellan men mig
        min mina mitt mot mycket ni nu när någon något några och om oss på samma sedan sig sin
        sina sitta själv skulle som så sådan till under upp ut utan vad var vara varför varit vars
        vem vi vid vilken vår våra än är över""",
    "norwegian": """
        alle at av bare begge ble bli blir blitt både båe da de deg dei deim deira deires dem den
        denne der dere deres det dette di din disse ditt du dykk eg ein eit ein eller en enn er et
        ett etter for fordi fra før ha hadde han hans har hennar henne hennes her hjå ho hoe hun
        hva hvem hver hvilke hvis hvor hvordan hvorfor i ikke ikkje ingen inn ja jeg kan kom
        korleis kva kvar kvifor man mange me med medan meg meget mellom men mi min mitt mot mye
        mykje nå når ned no noe noen og også om opp oss over på samme seg selv si siden sin sine
        sitt skal skulle slik som sånn så til um upp ut uten var vart vere verte vi vil ville være
        vært vår""",
    "turkish": """
        acaba ama ancak artık aslında az bana bazı belki ben benim beri bile bir biri birkaç biz
        bize bizim bu buna bunda bundan bunlar bunu bunun burada çok çünkü da daha de değil diye
        eğer en gibi göre hem hep hepsi her hiç için ile ise işte kadar karşı kendi ki kim mı mi
        mu mü nasıl ne neden nerede niçin niye o olan olarak oldu olduğu olur ona ondan onlar onu
        onun orada oysa öyle pek sadece sanki sen siz sonra şey şu tüm üzere var ve veya ya yani
        yerine yine yoksa zaten""",
    "danish": """
        af alle alt anden at blev blive bliver da de dem den denne der deres det dette dig din
        disse dog du efter eller en end er et for fordi fra før ham han hans har havde have hende
        hendes her hos hun hvad hvem hver hvilken hvis hvor hvordan hvornår i ikke ind jeg jer jo
        kan kunne man mange med meget men mig min mine mit mod ned noget nogle nu når og også om
        op os over på selv sig sin sine sit skal skulle som sådan thi til ud under var vi vil
        ville vor være været""",
}
STOP_WORDS = {name: frozenset(text.split()) for name, text in _LISTS.items()}
