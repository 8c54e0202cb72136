// Variants of a function for the processor's vector instructions.
#pragma once

#if defined(__x86_64__)
#define VARDA_FEDERATED_X86 1
#else
#define VARDA_FEDERATED_X86 0
#endif

namespace varda::federated::kernels {

enum class Vectors { kBase, kAvx2, kAvx512 };

/// The widest instructions of this processor. The environment variable VARDA_VECTORS (base, avx2)
/// selects fewer.
Vectors vectors();
/// For tests: from now on these, or narrower ones if the processor lacks them.
void limit_vectors(Vectors widest);

}  // namespace varda::federated::kernels

#if defined(__clang__)
#define VARDA_KERNEL_WIDE ""
#else
#define VARDA_KERNEL_WIDE ",prefer-vector-width=512"
#endif

// A body is inlined into each variant, which compiles it for other instructions.
#define VARDA_KERNEL_BODY static inline __attribute__((always_inline))

#if VARDA_FEDERATED_X86
// Defines NAME with the body NAME_body. Fused multiplications are left out: their results differ.
#define VARDA_KERNEL(RESULT, NAME, PARAMETERS, ARGUMENTS)                                       \
  VARDA_KERNEL_VARIANTS(RESULT, NAME, PARAMETERS, NAME##_body ARGUMENTS, NAME##_body ARGUMENTS, \
                        NAME##_body ARGUMENTS, ARGUMENTS, "avx2",                               \
                        "avx512f,avx512bw,avx512dq,avx512vl" VARDA_KERNEL_WIDE)
// The same for a body that is a template of the bytes of a vector.
#define VARDA_KERNEL_BY_WIDTH(RESULT, NAME, PARAMETERS, ARGUMENTS, FUSED)                \
  VARDA_KERNEL_VARIANTS(RESULT, NAME, PARAMETERS, NAME##_body<16> ARGUMENTS,             \
                        NAME##_body<32> ARGUMENTS, NAME##_body<64> ARGUMENTS, ARGUMENTS, \
                        "avx2" FUSED,                                                    \
                        "avx512f,avx512bw,avx512dq,avx512vl" FUSED VARDA_KERNEL_WIDE)
#define VARDA_KERNEL_VARIANTS(RESULT, NAME, PARAMETERS, BASE, AVX2, AVX512, ARGUMENTS, AVX2_SET, \
                              AVX512_SET)                                                        \
  __attribute__((target(AVX2_SET))) static RESULT NAME##_avx2 PARAMETERS { return AVX2; }        \
  __attribute__((target(AVX512_SET))) static RESULT NAME##_avx512 PARAMETERS { return AVX512; }  \
  static RESULT NAME##_base PARAMETERS { return BASE; }                                          \
  RESULT NAME PARAMETERS {                                                                       \
    switch (vectors()) {                                                                         \
      case Vectors::kAvx512:                                                                     \
        return NAME##_avx512 ARGUMENTS;                                                          \
      case Vectors::kAvx2:                                                                       \
        return NAME##_avx2 ARGUMENTS;                                                            \
      case Vectors::kBase:                                                                       \
        break;                                                                                   \
    }                                                                                            \
    return NAME##_base ARGUMENTS;                                                                \
  }
#else
#define VARDA_KERNEL(RESULT, NAME, PARAMETERS, ARGUMENTS) \
  RESULT NAME PARAMETERS { return NAME##_body ARGUMENTS; }
#define VARDA_KERNEL_BY_WIDTH(RESULT, NAME, PARAMETERS, ARGUMENTS, FUSED) \
  RESULT NAME PARAMETERS { return NAME##_body<16> ARGUMENTS; }
#endif
