/* CRC-32C (Castagnoli): the portable kernel, and the choice of the best one for the processor. */

#include "compiled.h"
#include "crc32c.h"

#include <stdatomic.h>

/* Slicing by eight (Intel, 2006): table k is the CRC of a byte followed by k zero bytes. A CRC is linear, so an
   entry is the exclusive or of the entries of its single bits: eight numbers make a table, at compile time, and
   nothing needs initialization. */
#define BIT(i, bit, number) ((i) >> (bit) & 1 ? (number) : 0)
#define ENTRY(i, a, b, c, d, e, f, g, h)                                                                     \
    BIT(i, 0, a) ^ BIT(i, 1, b) ^ BIT(i, 2, c) ^ BIT(i, 3, d) ^ BIT(i, 4, e) ^ BIT(i, 5, f) ^ BIT(i, 6, g) ^ \
        BIT(i, 7, h)
#define FOUR(i, ...) \
    ENTRY(i, __VA_ARGS__), ENTRY(i + 1, __VA_ARGS__), ENTRY(i + 2, __VA_ARGS__), ENTRY(i + 3, __VA_ARGS__)
#define SIXTEEN(i, ...) \
    FOUR(i, __VA_ARGS__), FOUR(i + 4, __VA_ARGS__), FOUR(i + 8, __VA_ARGS__), FOUR(i + 12, __VA_ARGS__)
#define SIXTY_FOUR(i, ...)                                                             \
    SIXTEEN(i, __VA_ARGS__), SIXTEEN(i + 16, __VA_ARGS__), SIXTEEN(i + 32, __VA_ARGS__), \
        SIXTEEN(i + 48, __VA_ARGS__)
#define TABLE(...)                                                                              \
    {SIXTY_FOUR(0, __VA_ARGS__), SIXTY_FOUR(64, __VA_ARGS__), SIXTY_FOUR(128, __VA_ARGS__), \
     SIXTY_FOUR(192, __VA_ARGS__)}

static const uint32_t tables[8][256] = {
    TABLE(0xF26B8303u, 0xE13B70F7u, 0xC79A971Fu, 0x8AD958CFu, 0x105EC76Fu, 0x20BD8EDEu, 0x417B1DBCu, 0x82F63B78u),
    TABLE(0x13A29877u, 0x274530EEu, 0x4E8A61DCu, 0x9D14C3B8u, 0x3FC5F181u, 0x7F8BE302u, 0xFF17C604u, 0xFBC3FAF9u),
    TABLE(0xA541927Eu, 0x4F6F520Du, 0x9EDEA41Au, 0x38513EC5u, 0x70A27D8Au, 0xE144FB14u, 0xC76580D9u, 0x8B277743u),
    TABLE(0xDD45AAB8u, 0xBF672381u, 0x7B2231F3u, 0xF64463E6u, 0xE964B13Du, 0xD725148Bu, 0xABA65FE7u, 0x52A0C93Fu),
    TABLE(0x38116FACu, 0x7022DF58u, 0xE045BEB0u, 0xC5670B91u, 0x8F2261D3u, 0x1BA8B557u, 0x37516AAEu, 0x6EA2D55Cu),
    TABLE(0xEF306B19u, 0xDB8CA0C3u, 0xB2F53777u, 0x6006181Fu, 0xC00C303Eu, 0x85F4168Du, 0x0E045BEBu, 0x1C08B7D6u),
    TABLE(0x68032CC8u, 0xD0065990u, 0xA5E0C5D1u, 0x4E2DFD53u, 0x9C5BFAA6u, 0x3D5B83BDu, 0x7AB7077Au, 0xF56E0EF4u),
    TABLE(0x493C7D27u, 0x9278FA4Eu, 0x211D826Du, 0x423B04DAu, 0x847609B4u, 0x0D006599u, 0x1A00CB32u, 0x34019664u),
};

static inline uint32_t
read_little_endian(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint32_t
crc32c_portable(uint32_t state, const uint8_t *bytes, size_t size)
{
    for (; size >= 8; size -= 8, bytes += 8) {
        uint32_t low = state ^ read_little_endian(bytes), high = read_little_endian(bytes + 4);
        state = tables[7][low & 0xFF] ^ tables[6][low >> 8 & 0xFF] ^ tables[5][low >> 16 & 0xFF] ^
                tables[4][low >> 24] ^ tables[3][high & 0xFF] ^ tables[2][high >> 8 & 0xFF] ^
                tables[1][high >> 16 & 0xFF] ^ tables[0][high >> 24];
    }
    while (size-- > 0)
        state = state >> 8 ^ tables[0][(state ^ *bytes++) & 0xFF];
    return state;
}

static int
always(void)
{
    return 1;
}

const Crc32cKernel crc32c_kernels[] = {
#ifdef CRC32C_X86
    {"x86-64 vpclmulqdq 512", crc32c_clmul512, has_clmul512},
    {"x86-64 vpclmulqdq 256", crc32c_clmul256, has_clmul256},
    {"x86-64 pclmulqdq", crc32c_clmul128, has_clmul128},
    {"x86-64 sse4.2", crc32c_sse42, has_sse42},
#endif
#ifdef CRC32C_ARM64
    {"arm64 crc", crc32c_arm64, has_arm64_crc},
#endif
    {"portable", crc32c_portable, always},
    {NULL, NULL, NULL},
};

static const Crc32cKernel *
best_kernel(void)
{
    const Crc32cKernel *kernel = crc32c_kernels;
    while (!kernel->is_usable())
        kernel++;
    return kernel;
}

static uint32_t crc32c_first(uint32_t state, const uint8_t *bytes, size_t size);

/* The kernel in use. If several threads come first at the same time, they all store the same. */
static _Atomic(Crc32cFunction) function = crc32c_first;

static uint32_t
crc32c_first(uint32_t state, const uint8_t *bytes, size_t size)
{
    Crc32cFunction best = best_kernel()->function;
    atomic_store_explicit(&function, best, memory_order_relaxed);
    return best(state, bytes, size);
}

uint32_t
crc32c(uint32_t crc, const uint8_t *bytes, size_t size)
{
    return ~atomic_load_explicit(&function, memory_order_relaxed)(~crc, bytes, size);
}

const char *
crc32c_kernel(void)
{
    return best_kernel()->name;
}
