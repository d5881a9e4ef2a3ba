/* Positions at which a long JSON text can be cut, so that it is read in pieces.
 *
 * Only brackets, commas and quotes are examined: the reader of the pieces checks that they are
 * JSON. Strings are in double quotes or, as fastjson accepts them, in single quotes. UTF-8 is not
 * checked: a malformed sequence never includes an ASCII byte. */
#ifndef TURBOPUMP_JSON_SPLIT_H
#define TURBOPUMP_JSON_SPLIT_H

#include <stddef.h>
#include <stdint.h>

enum json_split_kind {
    JSON_SPLIT_CLOSED, /* the container ends: `end` is at its bracket */
    JSON_SPLIT_COMMA,  /* whole members up to `end`, which is at a comma */
    JSON_SPLIT_LARGE,  /* the first member is larger than a piece; `end` is where its container
                          begins */
    JSON_SPLIT_ENDS,   /* the text ends inside the container */
};

struct json_split {
    enum json_split_kind kind;
    size_t end;
    size_t containers; /* opened in the piece */
    size_t commas;     /* in the piece */
};

/* Find the piece of a container's members that begins at text[at): at most `room` bytes of whole
 * members, or one member without a container inside. */
void json_split_next(const uint8_t *text, size_t size, size_t at, size_t room,
                     struct json_split *split);

#endif
