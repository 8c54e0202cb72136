// Two models on the same samples, for the gate of incremental learning: base and candidate.
//
// The counts are paired: `onlyBase` and `onlyCandidate` are the discordant pairs of McNemar's test.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "codec/json.h"
#include "infer/engine.h"
#include "samples/samples.h"
#include "training/settings.h"

namespace varda::training {

struct ClassCounts {
  std::string name;
  std::uint64_t samples = 0, base_right = 0, candidate_right = 0;
};

struct Slice {
  std::string name;
  std::uint64_t samples = 0, base_right = 0, candidate_right = 0;
  std::uint64_t only_base = 0, only_candidate = 0;  // right answers of one model alone
  std::vector<ClassCounts> classes;                 // with samples
};

struct Comparison {
  std::int64_t round = 0;
  std::uint64_t selected_train = 0, selected_evaluate = 0;
  std::vector<Slice> slices;
  std::map<std::string, double> base, candidate;  // metrics of the first slice with samples
  double base_milliseconds = 0, candidate_milliseconds = 0;  // one sample, the median
  std::uint64_t base_bytes = 0, candidate_bytes = 0;
};

struct ComparisonRequest {
  std::string base, candidate;  // bytes of ONNX files
  struct Data {
    std::string name;
    std::shared_ptr<const samples::Dataset> data;  // null, or without samples: an empty slice
  };
  std::vector<Data> slices;  // one with samples at least
  Settings settings;         // task, loss, batch size, threads
};

/// The answers of both models in one pass over the data. A base with fewer classes than the data
/// answers among its own classes. kInvalid, kUnsupported: a model does not fit the data.
Result<Comparison> compare(const Context& ctx, infer::Engine& engine,
                           const ComparisonRequest& request);

/// The form of docs/design/033-incremental-learning.md.
codec::Json to_json(const Comparison& comparison);

}  // namespace varda::training
