/* The kernels of CRC-32C: what crc32c.c chooses from.

   A kernel takes and returns the raw state: the checksum with all its bits inverted. Every kernel gives the
   same numbers; a test compares each one that the processor has with a reference that works bit by bit.
*/

#ifndef LOGSTORE_CRC32C_H
#define LOGSTORE_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint32_t (*Crc32cFunction)(uint32_t state, const uint8_t *bytes, size_t size);

typedef struct {
    const char *name;
    Crc32cFunction function;
    int (*is_usable)(void); /* whether this processor and system have what it needs */
} Crc32cKernel;

#if defined(__GNUC__) && defined(__x86_64__)
#define CRC32C_X86 1
#elif defined(__GNUC__) && defined(__aarch64__) && defined(__AARCH64EL__) && \
    (defined(__linux__) || defined(__APPLE__))
#define CRC32C_ARM64 1
#endif

/* The fastest first; ends with an entry without a name. */
extern const Crc32cKernel crc32c_kernels[];

#ifdef CRC32C_X86
uint32_t crc32c_sse42(uint32_t state, const uint8_t *bytes, size_t size);
uint32_t crc32c_clmul128(uint32_t state, const uint8_t *bytes, size_t size);
uint32_t crc32c_clmul256(uint32_t state, const uint8_t *bytes, size_t size);
uint32_t crc32c_clmul512(uint32_t state, const uint8_t *bytes, size_t size);
int has_sse42(void);
int has_clmul128(void);
int has_clmul256(void);
int has_clmul512(void);
#endif

#ifdef CRC32C_ARM64
uint32_t crc32c_arm64(uint32_t state, const uint8_t *bytes, size_t size);
int has_arm64_crc(void);
#endif

#endif
