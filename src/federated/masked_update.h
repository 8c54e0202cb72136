// Masked updates of secure aggregation: a client's changes as integers. Their sum over all clients
// gives the mean.
//
//   MaskedForm form{.limit = 8, .clients = 5, .weight_max = 65'536};
//   TRY(MaskedValues mine, to_integers(form, delta, samples));        // the client
//   TRY_VOID(sum_client.add_masks(mine.values));
//   TRY(const std::string file, encode_masked(info, mine.values));
//   …
//   TRY(const MaskedMean mean, mean_of(form, sum, clients_in_the_sum));   // the server
//
// After the changes the vector has the client's weight, so that the sum has the sum of the weights,
// and the number 1. If the last value of the sum is not the number of clients, a mask is left in
// the sum, because a client revealed wrong shares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "codec/json.h"
#include "federated/update.h"
#include "os/file_system.h"

namespace varda::federated {

/// Values of a vector after the changes: weight and count.
inline constexpr std::size_t kMaskedTail = 2;

/// The facts that all clients of one sum share.
struct MaskedForm {
  double limit = 0;           // values beyond it are cut
  std::uint64_t clients = 1;  // at most so many vectors are added
  double weight_max = 0;      // samples that count; 0: all clients weigh the same
  double clip = 0;            // L2 norm of the changes, rounding included; 0: no limit
};

struct MaskedValues {
  std::vector<std::uint32_t> values;  // changes, weight, count
  std::uint64_t cut = 0;              // changes beyond the limit
};
/// Rounds stochastically. kInvalid: samples of 0, a value that is not finite, or a clip below the
/// rounding error.
Result<MaskedValues> to_integers(const MaskedForm& form, std::span<const float> delta,
                                 std::uint64_t samples);

struct MaskedMean {
  std::vector<float> delta;  // weighted mean of the changes, or the sum divided by `divisor`
  double weight = 0;         // sum of the weights, from 0 to `clients`
};
/// The mean from the sum of `clients` vectors without masks. A `divisor` above 0 replaces the sum
/// of the weights. kCorrupt: no such sum, because a client sent a wrong vector or wrong shares.
Result<MaskedMean> mean_of(const MaskedForm& form, std::span<const std::uint32_t> sum,
                           std::uint64_t clients, double divisor = 0);

/// The facts of a masked vector that its client does not hide.
struct MaskedInfo {
  std::string task;
  codec::Sha256 base;                           // of the model's file
  codec::Json metrics = codec::Json::object();  // of numbers
};
/// A safetensors file with one tensor of the type U32.
Result<std::string> encode_masked(const MaskedInfo& info, std::span<const std::uint32_t> values);

struct MaskedFile {
  MaskedInfo info;
  std::vector<std::uint32_t> values;
};
/// Reads a file for the task and the model, with `length` values.
Result<MaskedFile, Refusal> read_masked(os::FileSystem& fs, const os::Path& path,
                                        const std::string& task, const codec::Sha256& base,
                                        std::size_t length);
/// The same from bytes.
Result<MaskedFile, Refusal> parse_masked(std::string bytes, const std::string& task,
                                         const codec::Sha256& base, std::size_t length);

}  // namespace varda::federated
