// Kept samples: which requests a server keeps for labelling and training, and how many it has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/sedna/worker.h"
#include "codec/json.h"

namespace varda::api {

template <typename T>
class Type;

/// Limits of bytes, as text.
inline constexpr std::string_view kBytesPattern = "^([0-9]{1,15}(k|M|G|T|Ki|Mi|Gi|Ti)?)?$";

/// Labels by a bigger model.
struct PseudoLabelSettings {
  static constexpr double kDefaultMinimum = 0.9;

  std::optional<double> minimum;  // score from which an answer counts as a label
  Json unknown;
  friend bool operator==(const PseudoLabelSettings&, const PseudoLabelSettings&) = default;
  static void describe(Type<PseudoLabelSettings>& t);
};

struct SampleSettings {
  static constexpr std::int64_t kDefaultBytesMax = std::int64_t{64} << 20;
  static constexpr std::int64_t kDefaultCountMax = 1000;

  std::optional<TierPolicy> hard_example_mining;
  std::string bytes_max;                  // quantity; "": kDefaultBytesMax
  std::optional<std::int64_t> count_max;  // absent: kDefaultCountMax
  std::optional<double> control_share;    // absent: 0
  std::string replacement;                // reservoir, class-balanced; "": class-balanced
  std::optional<PseudoLabelSettings> pseudo_labels;
  Json unknown;
  friend bool operator==(const SampleSettings&, const SampleSettings&) = default;
  static void describe(Type<SampleSettings>& t);
};

/// Content of samples.json beside a model (serving/sampling/config.h). `fallback`: the policy if
/// the settings have none; null: none.
Json samples_file(const SampleSettings& settings, const HardExampleMining* fallback = nullptr);

/// A server's counts since the version began to serve with the settings.
struct SampleReport {
  std::string version;
  std::int64_t answers = 0;
  std::int64_t failures = 0;  // requests without an answer, by no fault of the client
  std::int64_t hard = 0;      // answers
  std::int64_t kept = 0;      // samples
  std::int64_t dropped = 0;   // requests that could not be kept
  std::int64_t pending = 0;   // samples on the disk without a label
  std::int64_t bytes = 0;     // of those
  // Samples by the score of the best class, in 20 equal ranges from 0 to 1.
  std::vector<std::int64_t> scores;
  std::string since;   // RFC 3339, by the node's clock
  std::string reason;  // one word, "": no problem
  std::string message;
  Json unknown;
  friend bool operator==(const SampleReport&, const SampleReport&) = default;
  /// From the answer of GET /v2/models/MODEL/samples. Senseless members become 0.
  static SampleReport from_server(const Json& answer);
  static void describe(Type<SampleReport>& t);
};

}  // namespace varda::api
