/* Runs a target on each named file, as libFuzzer does, for machines without libFuzzer. */
#include "fuzz.h"

int main(int count, char **names)
{
    for (int n = 1; n < count; n++) {
        FILE *file = fopen(names[n], "rb");
        uint8_t *data;
        long size;
        CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
        size = ftell(file);
        CHECK(size >= 0 && fseek(file, 0, SEEK_SET) == 0);
        data = malloc((size_t)size);
        CHECK(size == 0 || fread(data, 1, (size_t)size, file) == (size_t)size);
        fclose(file);
        LLVMFuzzerTestOneInput(data, (size_t)size);
        free(data);
    }
    return 0;
}
