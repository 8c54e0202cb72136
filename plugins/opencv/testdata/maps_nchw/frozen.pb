
G
imagePlaceholder*
dtype0*$
shape:ÿÿÿÿÿÿÿÿÿ
›
kernelConst*
dtype0*ü
valueòBï"Ø/e4¾æÃ²¾‘Ž>¢éÚ¾ù=Øˆ	¾÷Mâ¾s§ó;^Íì¾Æä‡½é;Ü¾ŽÑ¾¯•š½)Y§>À¾Ÿ³¾Û}>:å>'è=0™Ó½¶×ó>Q&è¾.‰·>ªpW¾3$¶¾¼°Ã¾WD¾PÛ¡>Õw£¾ý§=U?>8ª¾³C= Úß¾õ{á¾”Œ–¾Åº8>|J”½4P>¾;¯=½Á?½á	M¾è¸–>2ÅK>Èƒ¾uk˜=æhÎ<À>µój>Ø&Y¾zÙõ>âŒÃ¾9¯§½ú§ƒ>
9
biasConst*
dtype0*
valueB"/²¾Ô4¼
g
Conv2DConv2Dimagekernel*
T0*
strides
*
paddingSAME*
data_formatNCHW
@
BiasAddBiasAddConv2Dbias*
T0*
data_formatNCHW

mapsReluBiasAdd*
T0