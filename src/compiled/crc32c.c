/* CRC-32C. */

#include "compiled.h"

uint32_t
crc32c(uint32_t crc, const uint8_t *bytes, size_t size)
{
    crc = ~crc;
    while (size-- > 0) {
        crc ^= *bytes++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82F63B78u & (0u - (crc & 1)));
    }
    return ~crc;
}

const char *
crc32c_kernel(void)
{
    return "bit by bit";
}
