/* CRC-32C on x86-64: the crc32 instruction, and folding by carry-less multiplication in three widths.

   Folding ("Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009): 16 bytes
   that lie D bits ahead of 16 others are multiplied by x^D modulo the polynomial and added to them, until 16 are
   left, whose CRC is the CRC of all. Each half of the 16 has its own constant, x^(D + 64) for the first, x^D for
   the second. Both are divided by x^33 here: a product of bit-reflected numbers comes out shifted by one bit, and
   the constants are in the lower 32 bits of 64.

   The wider the registers, the faster, in cache: the instruction 8 GB/s, the three widths 25, 50 and 80
   (Sapphire Rapids). From memory the widest is as fast as reading.
*/

#include "crc32c.h"

#ifdef CRC32C_X86

#include <immintrin.h>

#define SSE42 __attribute__((target("sse4.2")))
#define CLMUL128 __attribute__((target("sse4.2,pclmul")))
#define CLMUL256 __attribute__((target("sse4.2,pclmul,avx2,vpclmulqdq")))
#define CLMUL512 __attribute__((target("sse4.2,pclmul,avx2,vpclmulqdq,avx512f,avx512vl")))

/* The constants that fold by D bits: x^(D + 31) and x^(D - 33) modulo the polynomial, bit-reflected. */
#define FOLD_BY_128 0xF20C0DFE, 0x493C7D27
#define FOLD_BY_256 0x3DA6D0CB, 0xBA4FC28E
#define FOLD_BY_384 0x1C291D04, 0xDDC0152B
#define FOLD_BY_512 0x740EEF02, 0x9E4ADDF8
#define FOLD_BY_1024 0x6992CEA2, 0x0D3B6092
#define FOLD_BY_2048 0xDCB17AA4, 0xB9E02B86

enum {
    /* Below these sizes the narrower kernel is as fast or faster. */
    MIN_CLMUL128_BYTES = 128,
    MIN_CLMUL256_BYTES = 256,
    MIN_CLMUL512_BYTES = 256,
    /* The processor's own prefetcher stops at each page: prefetching this far ahead saves 12 % for bytes that come
       from memory, and costs nothing in cache. */
    PREFETCH_BYTES = 1024
};

int
has_sse42(void)
{
    return __builtin_cpu_supports("sse4.2");
}

int
has_clmul128(void)
{
    return has_sse42() && __builtin_cpu_supports("pclmul");
}

int
has_clmul256(void)
{
    /* These answers also mean that the operating system saves the wide registers. */
    return has_clmul128() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
}

int
has_clmul512(void)
{
    return has_clmul256() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
}

SSE42 uint32_t
crc32c_sse42(uint32_t state, const uint8_t *bytes, size_t size)
{
    uint64_t wide = state;
    for (; size >= 8; size -= 8, bytes += 8) {
        uint64_t eight;
        memcpy(&eight, bytes, 8);
        wide = _mm_crc32_u64(wide, eight);
    }
    state = (uint32_t)wide;
    if (size & 4) {
        uint32_t four;
        memcpy(&four, bytes, 4);
        state = _mm_crc32_u32(state, four);
        bytes += 4;
    }
    if (size & 2) {
        uint16_t two;
        memcpy(&two, bytes, 2);
        state = _mm_crc32_u16(state, two);
        bytes += 2;
    }
    return size & 1 ? _mm_crc32_u8(state, *bytes) : state;
}

/* Prefetch so many cache lines. Not an access: an address after the end does no harm. */
CLMUL128 static inline void
prefetch(const uint8_t *bytes, int line_count)
{
    uintptr_t ahead = (uintptr_t)bytes + PREFETCH_BYTES;
    for (int line = 0; line < line_count; line++)
        _mm_prefetch((const char *)(ahead + 64 * (uintptr_t)line), _MM_HINT_T0);
}

CLMUL128 static inline __m128i
load128(const uint8_t *at)
{
    return _mm_loadu_si128((const __m128i *)at);
}

CLMUL128 static inline __m128i
constants128(uint32_t first, uint32_t second)
{
    return _mm_set_epi64x(second, first);
}

/* The 16 bytes before next, moved to its place and added to it. */
CLMUL128 static inline __m128i
fold128(__m128i front, __m128i constants, __m128i next)
{
    __m128i first = _mm_clmulepi64_si128(front, constants, 0x00);
    __m128i second = _mm_clmulepi64_si128(front, constants, 0x11);
    return _mm_xor_si128(_mm_xor_si128(first, second), next);
}

/* The last step: the state after 16 bytes from state 0, and after the rest. */
CLMUL128 static inline uint32_t
finish(__m128i last, const uint8_t *bytes, size_t size)
{
    uint64_t state = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(last));
    state = _mm_crc32_u64(state, (uint64_t)_mm_extract_epi64(last, 1));
    return crc32c_sse42((uint32_t)state, bytes, size);
}

CLMUL128 uint32_t
crc32c_clmul128(uint32_t state, const uint8_t *bytes, size_t size)
{
    if (size < MIN_CLMUL128_BYTES)
        return crc32c_sse42(state, bytes, size);
    __m128i a = _mm_xor_si128(load128(bytes), _mm_cvtsi32_si128((int)state));
    __m128i b = load128(bytes + 16), c = load128(bytes + 32), d = load128(bytes + 48);
    __m128i by_64_bytes = constants128(FOLD_BY_512);
    for (bytes += 64, size -= 64; size >= 64; bytes += 64, size -= 64) {
        prefetch(bytes, 1);
        a = fold128(a, by_64_bytes, load128(bytes));
        b = fold128(b, by_64_bytes, load128(bytes + 16));
        c = fold128(c, by_64_bytes, load128(bytes + 32));
        d = fold128(d, by_64_bytes, load128(bytes + 48));
    }
    __m128i by_16_bytes = constants128(FOLD_BY_128), by_32_bytes = constants128(FOLD_BY_256);
    b = fold128(a, by_16_bytes, b);
    d = fold128(c, by_16_bytes, d);
    d = fold128(b, by_32_bytes, d);
    for (; size >= 16; bytes += 16, size -= 16)
        d = fold128(d, by_16_bytes, load128(bytes));
    return finish(d, bytes, size);
}

CLMUL256 static inline __m256i
load256(const uint8_t *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

CLMUL256 static inline __m256i
constants256(uint32_t first, uint32_t second)
{
    return _mm256_set_epi64x(second, first, second, first);
}

CLMUL256 static inline __m256i
fold256(__m256i front, __m256i constants, __m256i next)
{
    __m256i first = _mm256_clmulepi64_epi128(front, constants, 0x00);
    __m256i second = _mm256_clmulepi64_epi128(front, constants, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(first, second), next);
}

CLMUL256 uint32_t
crc32c_clmul256(uint32_t state, const uint8_t *bytes, size_t size)
{
    if (size < MIN_CLMUL256_BYTES)
        return crc32c_clmul128(state, bytes, size);
    __m256i start = _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)state));
    __m256i a = _mm256_xor_si256(load256(bytes), start);
    __m256i b = load256(bytes + 32), c = load256(bytes + 64), d = load256(bytes + 96);
    __m256i by_128_bytes = constants256(FOLD_BY_1024);
    for (bytes += 128, size -= 128; size >= 128; bytes += 128, size -= 128) {
        prefetch(bytes, 2);
        a = fold256(a, by_128_bytes, load256(bytes));
        b = fold256(b, by_128_bytes, load256(bytes + 32));
        c = fold256(c, by_128_bytes, load256(bytes + 64));
        d = fold256(d, by_128_bytes, load256(bytes + 96));
    }
    __m256i by_32_bytes = constants256(FOLD_BY_256), by_64_bytes = constants256(FOLD_BY_512);
    b = fold256(a, by_32_bytes, b);
    d = fold256(c, by_32_bytes, d);
    d = fold256(b, by_64_bytes, d);
    for (; size >= 32; bytes += 32, size -= 32)
        d = fold256(d, by_32_bytes, load256(bytes));
    __m128i last = fold128(_mm256_castsi256_si128(d), constants128(FOLD_BY_128), _mm256_extracti128_si256(d, 1));
    return finish(last, bytes, size);
}

CLMUL512 static inline __m512i
load512(const uint8_t *at)
{
    return _mm512_loadu_si512(at);
}

CLMUL512 static inline __m512i
constants512(uint32_t first, uint32_t second)
{
    return _mm512_set_epi64(second, first, second, first, second, first, second, first);
}

CLMUL512 static inline __m512i
fold512(__m512i front, __m512i constants, __m512i next)
{
    __m512i first = _mm512_clmulepi64_epi128(front, constants, 0x00);
    __m512i second = _mm512_clmulepi64_epi128(front, constants, 0x11);
    return _mm512_ternarylogic_epi64(first, second, next, 0x96); /* exclusive or of the three */
}

/* A pair of constants for each of the first three quarters; the last one is not multiplied. */
CLMUL512 static inline __m512i
constants_of_quarters(uint32_t a1, uint32_t a2, uint32_t b1, uint32_t b2, uint32_t c1, uint32_t c2)
{
    return _mm512_set_epi64(0, 0, c2, c1, b2, b1, a2, a1);
}

/* The four quarters of a wide register, folded into its last one. */
CLMUL512 static inline __m128i
narrow512(__m512i wide)
{
    __m512i constants = constants_of_quarters(FOLD_BY_384, FOLD_BY_256, FOLD_BY_128);
    __m512i folded = fold512(wide, constants, _mm512_maskz_mov_epi64(0xC0, wide)); /* the last stays */
    __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(folded), _mm512_extracti64x4_epi64(folded, 1));
    return _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

CLMUL512 uint32_t
crc32c_clmul512(uint32_t state, const uint8_t *bytes, size_t size)
{
    if (size < MIN_CLMUL512_BYTES)
        return crc32c_clmul128(state, bytes, size);
    __m512i a = _mm512_xor_si512(load512(bytes), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)state)));
    __m512i b = load512(bytes + 64), c = load512(bytes + 128), d = load512(bytes + 192);
    __m512i by_64_bytes = constants512(FOLD_BY_512), by_128_bytes = constants512(FOLD_BY_1024);
    __m512i by_256_bytes = constants512(FOLD_BY_2048);
    for (bytes += 256, size -= 256; size >= 256; bytes += 256, size -= 256) {
        prefetch(bytes, 4);
        a = fold512(a, by_256_bytes, load512(bytes));
        b = fold512(b, by_256_bytes, load512(bytes + 64));
        c = fold512(c, by_256_bytes, load512(bytes + 128));
        d = fold512(d, by_256_bytes, load512(bytes + 192));
    }
    b = fold512(a, by_64_bytes, b);
    d = fold512(c, by_64_bytes, d);
    d = fold512(b, by_128_bytes, d);
    for (; size >= 64; bytes += 64, size -= 64)
        d = fold512(d, by_64_bytes, load512(bytes));
    return finish(narrow512(d), bytes, size);
}

#endif
