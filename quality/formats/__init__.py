"""How each language writes dates, beyond Django's own formats (numbers are Django's): day, month and 24 hours.

`DATE_FORMAT` and `DATETIME_FORMAT` name the month, the short ones are figures alone, for tables. What forms take is the
same in all languages: the fields of browsers send ISO dates.
"""

DATE_INPUT_FORMATS = ["%Y-%m-%d"]
TIME_INPUT_FORMATS = ["%H:%M:%S", "%H:%M:%S.%f", "%H:%M"]
DATETIME_INPUT_FORMATS = ["%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M"]
