// The file of a finished run for the registry.
#pragma once

#include <string>

#include "base/context.h"
#include "base/result.h"
#include "codec/digest.h"
#include "os/file_system.h"
#include "worker/model_directory.h"

namespace varda::worker {

/// A file of the run's directory.
struct Delivery {
  std::string file;
  codec::Sha256 digest;
};

/// model.onnx alone, or model.tar with model.yaml and the labels, which a server reads beside the
/// model. An archive without compression lets nodes download only what changed.
Result<Delivery> package(const Context& ctx, os::FileSystem& fs, const os::Path& directory,
                         const ModelSource& source);

}  // namespace varda::worker
