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
#define VARDA_KERNEL(RESULT, NAME, PARAMETERS, ARGUMENTS)            \
  VARDA_KERNEL_VARIANTS(RESULT, NAME, PARAMETERS, ARGUMENTS, "avx2", \
                        "avx512f,avx512bw,avx512dq,avx512vl" VARDA_KERNEL_WIDE)
#define VARDA_KERNEL_VARIANTS(RESULT, NAME, PARAMETERS, ARGUMENTS, AVX2, AVX512) \
  __attribute__((target(AVX2))) static RESULT NAME##_avx2 PARAMETERS {           \
    return NAME##_body ARGUMENTS;                                                \
  }                                                                              \
  __attribute__((target(AVX512))) static RESULT NAME##_avx512 PARAMETERS {       \
    return NAME##_body ARGUMENTS;                                                \
  }                                                                              \
  static RESULT NAME##_base PARAMETERS { return NAME##_body ARGUMENTS; }         \
  RESULT NAME PARAMETERS {                                                       \
    switch (vectors()) {                                                         \
      case Vectors::kAvx512:                                                     \
        return NAME##_avx512 ARGUMENTS;                                          \
      case Vectors::kAvx2:                                                       \
        return NAME##_avx2 ARGUMENTS;                                            \
      case Vectors::kBase:                                                       \
        break;                                                                   \
    }                                                                            \
    return NAME##_base ARGUMENTS;                                                \
  }
#else
#define VARDA_KERNEL(RESULT, NAME, PARAMETERS, ARGUMENTS) \
  RESULT NAME PARAMETERS { return NAME##_body ARGUMENTS; }
#define VARDA_KERNEL_VARIANTS(RESULT, NAME, PARAMETERS, ARGUMENTS, AVX2, AVX512) \
  VARDA_KERNEL(RESULT, NAME, PARAMETERS, ARGUMENTS)
#endif
