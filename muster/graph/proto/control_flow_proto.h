// Conditionals and loops as the messages of a meta graph, so that an imported graph can still be
// differentiated and extended.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "muster/base/status.h"
#include "muster/graph/control_flow/control_flow.h"

namespace tensorflow {
class CondContextDef;
class WhileContextDef;
}  // namespace tensorflow

namespace muster {

// Contexts that are in no other one, in the order in which they were made. Loops that compute
// gradients are not among them.
std::vector<ControlFlowContext*> RootContexts(Graph& graph);

// Names lose the scope `export_scope` ("" : none).
void CondContextToProto(CondContext& context, absl::string_view export_scope,
                        tensorflow::CondContextDef& proto);
void WhileContextToProto(WhileContext& context, absl::string_view export_scope,
                         tensorflow::WhileContextDef& proto);
// The nodes, below `import_scope`, must be there. InvalidArgument when one is not.
absl::StatusOr<CondContext*> CondContextFromProto(Graph& graph, absl::string_view import_scope,
                                                  const tensorflow::CondContextDef& proto,
                                                  ControlFlowContext* outer = nullptr);
absl::StatusOr<WhileContext*> WhileContextFromProto(Graph& graph, absl::string_view import_scope,
                                                    const tensorflow::WhileContextDef& proto,
                                                    ControlFlowContext* outer = nullptr);

// Whether restored contexts are what the nodes themselves say: every node of a loop's frame that
// belongs to control flow is in the loop's context, and no node of another frame is.
// InvalidArgument otherwise; the nodes then belong to no context.
absl::Status CheckRestoredContexts(Graph& graph, absl::Span<ControlFlowContext* const> roots);

}  // namespace muster
