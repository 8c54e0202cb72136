// Facts: the file ID.json beside a kept sample.
//
//   {"version": 1, "id": "01KB…", "time": "2026-11-28T05:30:00.125Z", "model": "digits",
//    "modelVersion": "4", "reason": "hard", "policy": "CrossEntropy", "format": "png",
//    "bytes": 310, "row": 0, "rows": 1,
//    "scores": {"confidence": 0.51, "margin": 0.1, "entropy": 0.6},
//    "answers": [{"tier": "", "version": "4", "best": [{"label": "7", "score": 0.51}, …]}],
//    "pseudoLabel": {"label": "7", "score": 0.98, "tier": "cloud"}}
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/json.h"

namespace varda::spool {

inline constexpr std::size_t kFactsBytesMax = 64 << 10;
inline constexpr std::size_t kBestMax = 5;      // classes of one answer
inline constexpr std::size_t kAnswersMax = 16;  // tiers
inline constexpr std::size_t kLabelBytesMax = 200;

struct ClassScore {
  std::string label;
  double score = 0;
  friend bool operator==(const ClassScore&, const ClassScore&) = default;
};

/// The answer of one tier.
struct Answer {
  std::string tier;              // "": the model has one tier
  std::string version;           // of the tier's model
  std::vector<ClassScore> best;  // best first
  friend bool operator==(const Answer&, const Answer&) = default;
};

/// A label that a model gave.
struct PseudoLabel {
  std::string label;
  double score = 0;
  std::string tier;
  friend bool operator==(const PseudoLabel&, const PseudoLabel&) = default;
};

struct Facts {
  static constexpr std::string_view kHard = "hard", kControl = "control";
  static constexpr std::string_view kPng = "png", kJpeg = "jpg", kNpy = "npy";

  std::string id;
  std::string time;  // RFC 3339
  std::string model;
  std::string model_version;
  std::string reason;  // kHard, kControl
  std::string policy;  // "": none
  std::string format;  // kPng, kJpeg, kNpy: also the suffix of the file
  std::uint64_t bytes = 0;
  std::int64_t row = 0;  // of the request
  std::int64_t rows = 1;
  std::map<std::string, double> scores;  // confidence, margin, entropy, energy; absent: unknown
  std::vector<Answer> answers;           // the first tier's first
  std::optional<PseudoLabel> pseudo_label;
  friend bool operator==(const Facts&, const Facts&) = default;

  std::string file() const { return id + "." + format; }
};

/// kInvalid: no JSON, another version, or a member that is missing or wrong; the message names it.
/// Unknown members are ignored, so that newer servers may add some.
Result<Facts> parse_facts(std::string_view text);
codec::Json to_json(const Facts& facts);

/// True for a class that may be the name of a folder: UTF-8 without '/', control characters and a
/// leading '.'.
bool is_class_name(std::string_view name);
/// True for the suffixes of samples.
bool is_format(std::string_view suffix);

}  // namespace varda::spool
