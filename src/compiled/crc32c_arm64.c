/* CRC-32C on arm64: the crc32c instructions, optional in ARMv8.0 and part of every processor since 8.1. */

#include "crc32c.h"

#ifdef CRC32C_ARM64

#if defined(__linux__)
#include <sys/auxv.h>
#endif

int
has_arm64_crc(void)
{
#if defined(__linux__)
    enum { HWCAP_CRC32_BIT = 1 << 7 };
    return (getauxval(AT_HWCAP) & HWCAP_CRC32_BIT) != 0;
#else
    return 1; /* every arm64 processor of Apple */
#endif
}

/* Written as assembly, because each compiler has its own way to let a single function use an extension. */
#define CRC(instruction, register_form, state, number) \
    __asm__(".arch_extension crc\n\t" instruction " %w0, %w0, %" register_form "1" : "+r"(state) : "r"(number))

uint32_t
crc32c_arm64(uint32_t state, const uint8_t *bytes, size_t size)
{
    for (; size >= 8; size -= 8, bytes += 8) {
        uint64_t eight;
        memcpy(&eight, bytes, 8);
        CRC("crc32cx", "x", state, eight);
    }
    for (; size > 0; size--, bytes++)
        CRC("crc32cb", "w", state, (uint32_t)*bytes);
    return state;
}

#endif
