// A version on trial: spec.trial and status.trial of an InferenceModel, and the same of its node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/kind.h"
#include "meta/object.h"

namespace varda::api {

template <typename T>
class Type;

/// A version that answers beside the serving version.
struct ModelTrial {
  static constexpr std::string_view kShadow = "shadow", kCanary = "canary";

  std::string version;
  std::string mode;             // kShadow, kCanary
  std::optional<double> share;  // kCanary: of the requests, 0 to 1
  Json unknown;
  Json to_json() const;
  friend bool operator==(const ModelTrial&, const ModelTrial&) = default;
  static void describe(Type<ModelTrial>& t);
};

/// Counts of the serving version since the trial began.
struct ModelTrialServing {
  std::string version;
  std::int64_t answers = 0;
  std::int64_t failures = 0;
  std::optional<std::int64_t> hard;
  Json unknown;
  friend bool operator==(const ModelTrialServing&, const ModelTrialServing&) = default;
  static void describe(Type<ModelTrialServing>& t);
};

/// Medians; 0: no answers.
struct ModelTrialMicroseconds {
  std::int64_t serving = 0;
  std::int64_t trial = 0;
  Json unknown;
  friend bool operator==(const ModelTrialMicroseconds&, const ModelTrialMicroseconds&) = default;
  static void describe(Type<ModelTrialMicroseconds>& t);
};

struct ModelTrialStatus {
  static constexpr std::string_view kPending = "Pending", kLoading = "Loading", kReady = "Ready",
                                    kFailed = "Failed", kEnded = "Ended";

  std::string version;
  std::string mode;
  std::string state;
  std::string reason;
  std::string message;
  std::int64_t answers = 0;
  std::int64_t failures = 0;  // requests that only the serving version answered
  // kShadow: requests that both versions answered, and those with agreeing answers.
  std::int64_t compared = 0;
  std::int64_t agreed = 0;
  std::int64_t dropped = 0;          // kShadow: not run, because the server was busy
  std::optional<std::int64_t> hard;  // absent: the server has no policy
  ModelTrialMicroseconds microseconds;
  std::string since;  // RFC 3339, by the node's clock
  ModelTrialServing serving;
  Json unknown;
  friend bool operator==(const ModelTrialStatus&, const ModelTrialStatus&) = default;
  /// Reads a server's answer to GET /v2/models/MODEL/trial. Nothing: the answer has no trial, or is
  /// invalid. Texts are cut to the limits of the schema.
  static std::optional<ModelTrialStatus> of_server(const Json& answer);
  static void describe(Type<ModelTrialStatus>& t);
};

}  // namespace varda::api
