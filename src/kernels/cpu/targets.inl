// The instruction sets that vector code is compiled for; included before anything of Highway.
// SCALAR is the portable fallback of Highway with g++ 12.2; SSE4 machines without AVX2 use it too.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
#ifndef HWY_BROKEN_EMU128
#define HWY_BROKEN_EMU128 1
#endif
