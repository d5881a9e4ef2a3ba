#include "json_split.h"

/* Position after the string that begins at `at`, or `size`. */
static size_t string_end(const uint8_t *text, size_t size, size_t at)
{
    uint8_t quote = text[at++];
    while (at < size) {
        if (text[at] == '\\')
            at++;
        else if (text[at] == quote)
            return at + 1;
        at++;
    }
    return size;
}

static void cut(struct json_split *split, enum json_split_kind kind, size_t end)
{
    split->kind = kind;
    split->end = end;
}

void json_split_next(const uint8_t *text, size_t size, size_t at, size_t room,
                     struct json_split *split)
{
    size_t begin = at, depth = 0, containers = 0, commas = 0, first = size;
    int cuts = 0; /* a comma between members was found, and split->end is set */
    split->containers = split->commas = 0;
    while (at < size) {
        if (at - begin > room && (cuts || first < size)) {
            if (!cuts)
                cut(split, JSON_SPLIT_LARGE, first);
            return;
        }
        switch (text[at]) {
        case '"':
        case '\'':
            at = string_end(text, size, at);
            continue;
        case '{':
        case '[':
            if (depth++ == 0 && first == size)
                first = at;
            containers++;
            break;
        case '}':
        case ']':
            if (depth-- == 0) {
                cut(split, JSON_SPLIT_CLOSED, at);
                split->containers = containers;
                split->commas = commas;
                return;
            }
            break;
        case ',':
            commas++;
            if (depth == 0) {
                cut(split, JSON_SPLIT_COMMA, at);
                split->containers = containers;
                split->commas = commas;
                cuts = 1;
            }
            break;
        }
        at++;
    }
    cut(split, JSON_SPLIT_ENDS, size);
}
