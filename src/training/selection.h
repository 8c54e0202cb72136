// The samples of a round: new ones train or evaluate, old ones are replayed. A ledger on disk keeps
// which round used a sample.
//
//   const std::vector<SampleId> ids = ids_of(data);
//   TRY(const Selection chosen, select(fs, directory, task, ids));
//
// A sample is known by the place in its dataset: class folder and file name, or file and row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "os/file_system.h"
#include "samples/samples.h"
#include "training/incremental_task.h"

namespace varda::training {

/// The first 8 bytes of the SHA-256 of the sample's place. Among a million samples two have the
/// same id with a probability of 3e-8; one of them would then never train.
using SampleId = std::uint64_t;
SampleId sample_id(std::string_view place);
std::vector<SampleId> ids_of(const samples::Dataset& data);

/// Whether a sample trains, by a digest of seed and id: independent of round, order and neighbours.
bool trains(SampleId id, std::uint64_t seed, double probability);

struct LedgerRound {
  std::int64_t round = 0, attempt = 1;
  double train_probability = 0.8;
  std::uint64_t seed = 1;
  std::vector<SampleId> train, evaluate;  // ascending
  // An assignment named the round as refused. Later assignments may forget that.
  bool refused = false;
  bool operator==(const LedgerRound&) const = default;
};

/// The content of ledger.json: 11 bytes for each used sample.
struct Ledger {
  static constexpr std::size_t kSamplesMax = 4'000'000;

  std::vector<LedgerRound> rounds;  // ascending

  std::string encode() const;
  /// kCorrupt: not a ledger, or damaged.
  static Result<Ledger> decode(std::string_view bytes);
  std::size_t samples() const;
};
inline constexpr const char* kLedgerFile = "ledger.json";

/// Indices of samples in the data, ascending.
struct Selection {
  std::vector<std::size_t> train, evaluate;  // new in this round
  std::vector<std::size_t> old;              // trained in consumed rounds that were not refused
};

/// Selects all samples that no consumed or refused round has used, and writes the ledger before
/// returning. Rounds that are neither give their samples back. The same round and attempt select
/// the same samples again, also if the data have more samples by then. At least one new sample
/// trains. Without new samples, `train` and `evaluate` are empty and the ledger has no entry for
/// the round.
///
/// kInvalid: the round is consumed or refused already. kCorrupt: the ledger is damaged.
/// kExhausted: more than Ledger::kSamplesMax samples.
Result<Selection> select(os::FileSystem& fs, const os::Path& directory, const IncrementalTask& task,
                         std::span<const SampleId> present);

/// The selection that the round wrote, for the evaluation after the training. kNotFound: none.
Result<Selection> recall(os::FileSystem& fs, const os::Path& directory, const IncrementalTask& task,
                         std::span<const SampleId> present);

}  // namespace varda::training
