// The model to train: an ONNX file, or a directory as varda-serve reads it. The result is written
// as such a directory, so that varda-serve preprocesses as the training did.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "codec/digest.h"
#include "os/file_system.h"
#include "transform/declaration.h"

namespace varda::worker {

struct ModelSource {
  os::Path file;
  std::string bytes;
  transform::Declaration preprocess;
  std::vector<std::string> labels;
  std::string yaml;                        // content of model.yaml; "": none
  std::string labels_file = "labels.txt";  // its name in the directory
};

/// Follows links. A safetensors file is read as it is. kNotFound, kInvalid: the message has the path.
Result<ModelSource> read_model(os::FileSystem& fs, const os::Path& path);

/// Writes model.yaml and the labels of a trained model beside model.onnx. `classes` are the names
/// in the order of the outputs; empty: no file of labels.
Status write_beside(os::FileSystem& fs, const os::Path& directory, const ModelSource& source,
                    const std::vector<std::string>& classes);

/// Resolves links, because os::FileSystem does not follow them. An unresolvable path is returned
/// unchanged.
os::Path followed(const os::Path& path);
/// The content of a regular file. The message of an error has the path.
Result<std::string> read_regular(os::FileSystem& fs, const os::Path& file, std::uint64_t max_bytes);
Result<codec::Sha256> digest_of_file(os::FileSystem& fs, const os::Path& file);

}  // namespace varda::worker
