// The report of a run as one HTML file without scripts and without references to other files.
#pragma once

#include <string>

#include "codec/json.h"
#include "training/run.h"

namespace varda::trainapp {

struct Report {
  const training::Outcome& outcome;
  codec::Json settings;  // spec.trainer with all defaults
  std::string model;     // path of the initial model
  std::string data;
  std::string evaluation;       // path of these data, or "10 % of the data"
  std::string digest;           // SHA-256 of the result, in hex
  std::string engine;           // "onnxruntime 1.30.0"
  codec::Json comparison = {};  // with the base, of a round of incremental learning; null: none
};

/// Text from outside is escaped and shortened. The size is bounded: tables show at most 30 classes,
/// curves at most 400 points, and pictures have at most 1 MiB each.
std::string html_report(const Report& report);

}  // namespace varda::trainapp
