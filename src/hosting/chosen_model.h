// The source of an InferenceModel: its manifest, or the Model that its modelRef chose. Pure. Only
// the InferenceModel controller chooses; all other code reads the choice from the status.
#pragma once

#include <string>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/edgeai/edge_node.h"

namespace varda::hosting {

/// True: spec.modelRef is set, and has chosen no Model yet. Such a model has no versions.
bool awaits_choice(const api::InferenceModel& model);

/// The versions of the model, and its framework; "": unknown yet.
const std::vector<api::ManifestEntry>& manifest_of(const api::InferenceModel& model);
const std::string& framework_of(const api::InferenceModel& model);

/// The model with the chosen archives as its manifest, and without the modelRef. A model without a
/// modelRef is unchanged.
api::InferenceModel with_manifest(api::InferenceModel model);

/// An archive of a work list as an entry of a manifest.
api::ManifestEntry entry_of(const api::EdgeModelVersion& archive);

}  // namespace varda::hosting
