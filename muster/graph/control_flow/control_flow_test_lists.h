// Node lists that control_flow_test compares with: "name op inputs @colocated", in order of
// creation. Made by TensorFlow's compat.v1 without control flow v2; where 1.15 differs (Add for
// AddV2 in loops of gradients, the names of the initial gradient) they follow 1.15.
#pragma once

namespace muster {

inline constexpr char kCondGradient[] = R"(
x Placeholder
p Placeholder
cond/Switch Switch p,p
cond/switch_t Identity cond/Switch:1
cond/switch_f Identity cond/Switch
cond/pred_id Identity p
cond/mul Mul cond/mul/Switch:1,cond/mul/Switch:1
cond/mul/Switch Switch x,cond/pred_id @x
cond/Neg Neg cond/Neg/Switch
cond/Neg/Switch Switch x,cond/pred_id @x
cond/Merge Merge cond/Neg,cond/mul
gradients/Shape Const
gradients/grad_ys_0 Const
gradients/Fill Fill gradients/Shape,gradients/grad_ys_0
gradients/cond/Merge_grad/cond_grad Switch gradients/Fill,cond/pred_id @gradients/Fill
gradients/cond/Neg_grad/Neg Neg gradients/cond/Merge_grad/cond_grad
gradients/cond/mul_grad/Mul Mul gradients/cond/Merge_grad/cond_grad:1,cond/mul/Switch:1
gradients/cond/mul_grad/Mul_1 Mul gradients/cond/Merge_grad/cond_grad:1,cond/mul/Switch:1
gradients/Switch Switch x,cond/pred_id
gradients/Identity Identity gradients/Switch:1
gradients/Shape_1 Shape gradients/Switch:1
gradients/zeros/Const Const ^gradients/Identity
gradients/zeros Fill gradients/Shape_1,gradients/zeros/Const
gradients/cond/Neg/Switch_grad/cond_grad Merge gradients/cond/Neg_grad/Neg,gradients/zeros
gradients/AddN AddN gradients/cond/mul_grad/Mul,gradients/cond/mul_grad/Mul_1 @gradients/cond/mul_grad/Mul
gradients/Switch_1 Switch x,cond/pred_id
gradients/Identity_1 Identity gradients/Switch_1
gradients/Shape_2 Shape gradients/Switch_1
gradients/zeros_1/Const Const ^gradients/Identity_1
gradients/zeros_1 Fill gradients/Shape_2,gradients/zeros_1/Const
gradients/cond/mul/Switch_grad/cond_grad Merge gradients/zeros_1,gradients/AddN
gradients/AddN_1 AddN gradients/cond/Neg/Switch_grad/cond_grad,gradients/cond/mul/Switch_grad/cond_grad @gradients/cond/Neg/Switch_grad/cond_grad
)";

inline constexpr char kWhileGradient[] = R"(
x Placeholder
y Placeholder
Const Const
while/Enter Enter Const
while/Enter_1 Enter x
while/Merge Merge while/Enter,while/NextIteration
while/Merge_1 Merge while/Enter_1,while/NextIteration_1
while/Less/y Const ^while/Merge
while/Less Less while/Merge,while/Less/y
while/LoopCond LoopCond while/Less
while/Switch Switch while/Merge,while/LoopCond @while/Merge
while/Switch_1 Switch while/Merge_1,while/LoopCond @while/Merge_1
while/Identity Identity while/Switch:1
while/Identity_1 Identity while/Switch_1:1
while/add/y Const ^while/Identity
while/add AddV2 while/Identity,while/add/y
while/mul Mul while/Identity_1,while/mul/Enter
while/mul/Enter Enter y
while/NextIteration NextIteration while/add
while/NextIteration_1 NextIteration while/mul
while/Exit Exit while/Switch
while/Exit_1 Exit while/Switch_1
gradients/Shape Const
gradients/grad_ys_0 Const
gradients/Fill Fill gradients/Shape,gradients/grad_ys_0
gradients/f_count Const
gradients/f_count_1 Enter gradients/f_count
gradients/Merge Merge gradients/f_count_1,gradients/NextIteration
gradients/Switch Switch gradients/Merge,while/LoopCond
gradients/Add/y Const ^while/Identity
gradients/Add Add gradients/Switch:1,gradients/Add/y
gradients/NextIteration NextIteration gradients/Add,^gradients/while/mul_grad/Mul_1/StackPushV2
gradients/f_count_2 Exit gradients/Switch
gradients/b_count Const
gradients/b_count_1 Enter gradients/f_count_2
gradients/Merge_1 Merge gradients/b_count_1,gradients/NextIteration_1
gradients/GreaterEqual GreaterEqual gradients/Merge_1,gradients/GreaterEqual/Enter
gradients/GreaterEqual/Enter Enter gradients/b_count
gradients/b_count_2 LoopCond gradients/GreaterEqual
gradients/Switch_1 Switch gradients/Merge_1,gradients/b_count_2
gradients/Sub Sub gradients/Switch_1:1,gradients/GreaterEqual/Enter
gradients/NextIteration_1 NextIteration gradients/Sub,^gradients/while/mul_grad/Mul_1/b_sync
gradients/b_count_3 Exit gradients/Switch_1
gradients/while/Exit_1_grad/b_exit Enter gradients/Fill
gradients/while/Switch_1_grad/b_switch Merge gradients/while/Exit_1_grad/b_exit,gradients/while/Switch_1_grad_1/NextIteration
gradients/while/Merge_1_grad/Switch Switch gradients/while/Switch_1_grad/b_switch,gradients/b_count_2 @gradients/while/Switch_1_grad/b_switch
gradients/while/Enter_1_grad/Exit Exit gradients/while/Merge_1_grad/Switch
gradients/while/mul_grad/Mul Mul gradients/while/Merge_1_grad/Switch:1,gradients/while/mul_grad/Mul/Enter
gradients/while/mul_grad/Mul/Enter Enter y
gradients/while/mul_grad/Mul_1 Mul gradients/while/Merge_1_grad/Switch:1,gradients/while/mul_grad/Mul_1/StackPopV2
gradients/while/mul_grad/Mul_1/Const Const @while/Identity_1
gradients/while/mul_grad/Mul_1/f_acc StackV2 gradients/while/mul_grad/Mul_1/Const @while/Identity_1
gradients/while/mul_grad/Mul_1/Enter Enter gradients/while/mul_grad/Mul_1/f_acc
gradients/while/mul_grad/Mul_1/StackPushV2 StackPushV2 gradients/while/mul_grad/Mul_1/Enter,while/Identity_1,^gradients/Add
gradients/while/mul_grad/Mul_1/StackPopV2 StackPopV2 gradients/while/mul_grad/Mul_1/StackPopV2/Enter,^gradients/Sub
gradients/while/mul_grad/Mul_1/StackPopV2/Enter Enter gradients/while/mul_grad/Mul_1/f_acc
gradients/while/mul_grad/Mul_1/b_sync ControlTrigger ^gradients/while/mul_grad/Mul_1/StackPopV2
gradients/while/mul/Enter_grad/b_acc Const
gradients/while/mul/Enter_grad/b_acc_1 Enter gradients/while/mul/Enter_grad/b_acc
gradients/while/mul/Enter_grad/b_acc_2 Merge gradients/while/mul/Enter_grad/b_acc_1,gradients/while/mul/Enter_grad/NextIteration
gradients/while/mul/Enter_grad/Switch Switch gradients/while/mul/Enter_grad/b_acc_2,gradients/b_count_2
gradients/while/mul/Enter_grad/Add Add gradients/while/mul/Enter_grad/Switch:1,gradients/while/mul_grad/Mul_1
gradients/while/mul/Enter_grad/NextIteration NextIteration gradients/while/mul/Enter_grad/Add
gradients/while/mul/Enter_grad/b_acc_3 Exit gradients/while/mul/Enter_grad/Switch
gradients/while/Switch_1_grad_1/NextIteration NextIteration gradients/while/mul_grad/Mul
)";

inline constexpr char kUnknownShapeGradient[] = R"(
x Placeholder
Const Const
while/Enter Enter Const
while/Enter_1 Enter x
while/Merge Merge while/Enter,while/NextIteration
while/Merge_1 Merge while/Enter_1,while/NextIteration_1
while/Less/y Const ^while/Merge
while/Less Less while/Merge,while/Less/y
while/LoopCond LoopCond while/Less
while/Switch Switch while/Merge,while/LoopCond @while/Merge
while/Switch_1 Switch while/Merge_1,while/LoopCond @while/Merge_1
while/Identity Identity while/Switch:1
while/Identity_1 Identity while/Switch_1:1
while/add/y Const ^while/Identity
while/add AddV2 while/Identity,while/add/y
while/Tanh Tanh while/Identity_1
while/NextIteration NextIteration while/add
while/NextIteration_1 NextIteration while/Tanh
while/Exit Exit while/Switch
while/Exit_1 Exit while/Switch_1
gradients/Shape Shape while/Exit_1
gradients/grad_ys_0 Const
gradients/Fill Fill gradients/Shape,gradients/grad_ys_0
gradients/f_count Const
gradients/f_count_1 Enter gradients/f_count
gradients/Merge Merge gradients/f_count_1,gradients/NextIteration
gradients/Switch Switch gradients/Merge,while/LoopCond
gradients/Add/y Const ^while/Identity
gradients/Add Add gradients/Switch:1,gradients/Add/y
gradients/NextIteration NextIteration gradients/Add,^gradients/while/Tanh_grad/TanhGrad/StackPushV2
gradients/f_count_2 Exit gradients/Switch
gradients/b_count Const
gradients/b_count_1 Enter gradients/f_count_2
gradients/Merge_1 Merge gradients/b_count_1,gradients/NextIteration_1
gradients/GreaterEqual GreaterEqual gradients/Merge_1,gradients/GreaterEqual/Enter
gradients/GreaterEqual/Enter Enter gradients/b_count
gradients/b_count_2 LoopCond gradients/GreaterEqual
gradients/Switch_1 Switch gradients/Merge_1,gradients/b_count_2
gradients/Sub Sub gradients/Switch_1:1,gradients/GreaterEqual/Enter
gradients/NextIteration_1 NextIteration gradients/Sub,^gradients/while/Tanh_grad/TanhGrad/b_sync
gradients/b_count_3 Exit gradients/Switch_1
gradients/while/Exit_1_grad/b_exit Enter gradients/Fill
gradients/while/Switch_1_grad/b_switch Merge gradients/while/Exit_1_grad/b_exit,gradients/while/Switch_1_grad_1/NextIteration
gradients/while/Merge_1_grad/Switch Switch gradients/while/Switch_1_grad/b_switch,gradients/b_count_2 @gradients/while/Switch_1_grad/b_switch
gradients/while/Enter_1_grad/Exit Exit gradients/while/Merge_1_grad/Switch
gradients/while/Tanh_grad/TanhGrad TanhGrad gradients/while/Tanh_grad/TanhGrad/StackPopV2,gradients/while/Merge_1_grad/Switch:1
gradients/while/Tanh_grad/TanhGrad/Const Const @while/Tanh
gradients/while/Tanh_grad/TanhGrad/f_acc StackV2 gradients/while/Tanh_grad/TanhGrad/Const @while/Tanh
gradients/while/Tanh_grad/TanhGrad/Enter Enter gradients/while/Tanh_grad/TanhGrad/f_acc
gradients/while/Tanh_grad/TanhGrad/StackPushV2 StackPushV2 gradients/while/Tanh_grad/TanhGrad/Enter,while/Tanh,^gradients/Add
gradients/while/Tanh_grad/TanhGrad/StackPopV2 StackPopV2 gradients/while/Tanh_grad/TanhGrad/StackPopV2/Enter,^gradients/Sub
gradients/while/Tanh_grad/TanhGrad/StackPopV2/Enter Enter gradients/while/Tanh_grad/TanhGrad/f_acc
gradients/while/Tanh_grad/TanhGrad/b_sync ControlTrigger ^gradients/while/Tanh_grad/TanhGrad/StackPopV2
gradients/while/Switch_1_grad_1/NextIteration NextIteration gradients/while/Tanh_grad/TanhGrad
)";

inline constexpr char kNestedWhileGradient[] = R"(
x Placeholder
y Placeholder
Const Const
while/Enter Enter Const
while/Enter_1 Enter x
while/Merge Merge while/Enter,while/NextIteration
while/Merge_1 Merge while/Enter_1,while/NextIteration_1
while/Less/y Const ^while/Merge
while/Less Less while/Merge,while/Less/y
while/LoopCond LoopCond while/Less
while/Switch Switch while/Merge,while/LoopCond @while/Merge
while/Switch_1 Switch while/Merge_1,while/LoopCond @while/Merge_1
while/Identity Identity while/Switch:1
while/Identity_1 Identity while/Switch_1:1
while/add/y Const ^while/Identity
while/add AddV2 while/Identity,while/add/y
while/Const Const ^while/Identity
while/while/Enter Enter while/Const
while/while/Enter_1 Enter while/Identity_1
while/while/Merge Merge while/while/Enter,while/while/NextIteration
while/while/Merge_1 Merge while/while/Enter_1,while/while/NextIteration_1
while/while/Less/y Const ^while/while/Merge
while/while/Less Less while/while/Merge,while/while/Less/y
while/while/LoopCond LoopCond while/while/Less
while/while/Switch Switch while/while/Merge,while/while/LoopCond @while/while/Merge
while/while/Switch_1 Switch while/while/Merge_1,while/while/LoopCond @while/while/Merge_1
while/while/Identity Identity while/while/Switch:1
while/while/Identity_1 Identity while/while/Switch_1:1
while/while/add/y Const ^while/while/Identity
while/while/add AddV2 while/while/Identity,while/while/add/y
while/while/Tanh Tanh while/while/Identity_1
while/while/mul Mul while/while/Tanh,while/while/mul/Enter_1
while/while/mul/Enter Enter y
while/while/mul/Enter_1 Enter while/while/mul/Enter
while/while/NextIteration NextIteration while/while/add
while/while/NextIteration_1 NextIteration while/while/mul
while/while/Exit Exit while/while/Switch
while/while/Exit_1 Exit while/while/Switch_1
while/NextIteration NextIteration while/add
while/NextIteration_1 NextIteration while/while/Exit_1
while/Exit Exit while/Switch
while/Exit_1 Exit while/Switch_1
gradients/Shape Const
gradients/grad_ys_0 Const
gradients/Fill Fill gradients/Shape,gradients/grad_ys_0
gradients/f_count Const
gradients/f_count_1 Enter gradients/f_count
gradients/Merge Merge gradients/f_count_1,gradients/NextIteration
gradients/Switch Switch gradients/Merge,while/LoopCond
gradients/Add/y Const ^while/Identity
gradients/Add Add gradients/Switch:1,gradients/Add/y
gradients/NextIteration NextIteration gradients/Add,^gradients/StackPushV2
gradients/f_count_2 Exit gradients/Switch
gradients/b_count Const
gradients/b_count_1 Enter gradients/f_count_2
gradients/Merge_1 Merge gradients/b_count_1,gradients/NextIteration_1
gradients/GreaterEqual GreaterEqual gradients/Merge_1,gradients/GreaterEqual/Enter
gradients/GreaterEqual/Enter Enter gradients/b_count
gradients/b_count_2 LoopCond gradients/GreaterEqual
gradients/Switch_1 Switch gradients/Merge_1,gradients/b_count_2
gradients/Sub Sub gradients/Switch_1:1,gradients/GreaterEqual/Enter
gradients/NextIteration_1 NextIteration gradients/Sub,^gradients/b_sync
gradients/b_count_3 Exit gradients/Switch_1
gradients/f_count_3 Const ^while/Identity,^gradients/Add
gradients/f_count_4 Enter gradients/f_count_3
gradients/Merge_2 Merge gradients/f_count_4,gradients/NextIteration_2
gradients/Switch_2 Switch gradients/Merge_2,while/while/LoopCond
gradients/Add_1/y Const ^while/while/Identity
gradients/Add_1 Add gradients/Switch_2:1,gradients/Add_1/y
gradients/NextIteration_2 NextIteration gradients/Add_1,^gradients/while/while/mul_grad/Mul_1/StackPushV2
gradients/f_count_5 Exit gradients/Switch_2
gradients/Const Const @gradients/f_count_5
gradients/f_acc StackV2 gradients/Const @gradients/f_count_5
gradients/Enter Enter gradients/f_acc
gradients/StackPushV2 StackPushV2 gradients/Enter,gradients/f_count_5,^gradients/Add
gradients/StackPopV2 StackPopV2 gradients/StackPopV2/Enter,^gradients/Sub
gradients/StackPopV2/Enter Enter gradients/f_acc
gradients/b_sync ControlTrigger ^gradients/StackPopV2,^gradients/b_count_7
gradients/b_count_4 Const ^gradients/Sub
gradients/b_count_5 Enter gradients/StackPopV2
gradients/Merge_3 Merge gradients/b_count_5,gradients/NextIteration_3
gradients/GreaterEqual_1 GreaterEqual gradients/Merge_3,gradients/GreaterEqual_1/Enter
gradients/GreaterEqual_1/Enter Enter gradients/b_count_4
gradients/b_count_6 LoopCond gradients/GreaterEqual_1
gradients/Switch_3 Switch gradients/Merge_3,gradients/b_count_6
gradients/Sub_1 Sub gradients/Switch_3:1,gradients/GreaterEqual_1/Enter
gradients/NextIteration_3 NextIteration gradients/Sub_1,^gradients/while/while/mul_grad/Mul_1/b_sync
gradients/b_count_7 Exit gradients/Switch_3
gradients/while/Exit_1_grad/b_exit Enter gradients/Fill
gradients/while/Switch_1_grad/b_switch Merge gradients/while/Exit_1_grad/b_exit,gradients/while/Switch_1_grad_1/NextIteration
gradients/while/Merge_1_grad/Switch Switch gradients/while/Switch_1_grad/b_switch,gradients/b_count_2 @gradients/while/Switch_1_grad/b_switch
gradients/while/Enter_1_grad/Exit Exit gradients/while/Merge_1_grad/Switch
gradients/while/while/Exit_1_grad/b_exit Enter gradients/while/Merge_1_grad/Switch:1
gradients/while/while/Switch_1_grad/b_switch Merge gradients/while/while/Exit_1_grad/b_exit,gradients/while/while/Switch_1_grad_1/NextIteration
gradients/while/while/Merge_1_grad/Switch Switch gradients/while/while/Switch_1_grad/b_switch,gradients/b_count_6 @gradients/while/while/Switch_1_grad/b_switch
gradients/while/while/Enter_1_grad/Exit Exit gradients/while/while/Merge_1_grad/Switch
gradients/while/while/mul_grad/Mul Mul gradients/while/while/Merge_1_grad/Switch:1,gradients/while/while/mul_grad/Mul/Enter_1
gradients/while/while/mul_grad/Mul/Enter Enter y
gradients/while/while/mul_grad/Mul/Enter_1 Enter gradients/while/while/mul_grad/Mul/Enter
gradients/while/while/mul_grad/Mul_1 Mul gradients/while/while/Merge_1_grad/Switch:1,gradients/while/while/mul_grad/Mul_1/StackPopV2
gradients/while/while/mul_grad/Mul_1/Const Const @while/while/Tanh
gradients/while/while/mul_grad/Mul_1/f_acc StackV2 gradients/while/while/mul_grad/Mul_1/Const @while/while/Tanh
gradients/while/while/mul_grad/Mul_1/Enter Enter gradients/while/while/mul_grad/Mul_1/f_acc
gradients/while/while/mul_grad/Mul_1/Enter_1 Enter gradients/while/while/mul_grad/Mul_1/Enter
gradients/while/while/mul_grad/Mul_1/StackPushV2 StackPushV2 gradients/while/while/mul_grad/Mul_1/Enter_1,while/while/Tanh,^gradients/Add_1
gradients/while/while/mul_grad/Mul_1/StackPopV2 StackPopV2 gradients/while/while/mul_grad/Mul_1/StackPopV2/Enter_1,^gradients/Sub_1
gradients/while/while/mul_grad/Mul_1/StackPopV2/Enter Enter gradients/while/while/mul_grad/Mul_1/f_acc
gradients/while/while/mul_grad/Mul_1/StackPopV2/Enter_1 Enter gradients/while/while/mul_grad/Mul_1/StackPopV2/Enter
gradients/while/while/mul_grad/Mul_1/b_sync ControlTrigger ^gradients/while/while/mul_grad/Mul_1/StackPopV2
gradients/while/Switch_1_grad_1/NextIteration NextIteration gradients/while/while/Enter_1_grad/Exit
gradients/while/while/Tanh_grad/TanhGrad TanhGrad gradients/while/while/mul_grad/Mul_1/StackPopV2,gradients/while/while/mul_grad/Mul
gradients/while/while/mul/Enter_1_grad/b_acc Const ^gradients/Sub
gradients/while/while/mul/Enter_1_grad/b_acc_1 Enter gradients/while/while/mul/Enter_1_grad/b_acc
gradients/while/while/mul/Enter_1_grad/b_acc_2 Merge gradients/while/while/mul/Enter_1_grad/b_acc_1,gradients/while/while/mul/Enter_1_grad/NextIteration
gradients/while/while/mul/Enter_1_grad/Switch Switch gradients/while/while/mul/Enter_1_grad/b_acc_2,gradients/b_count_6
gradients/while/while/mul/Enter_1_grad/Add Add gradients/while/while/mul/Enter_1_grad/Switch:1,gradients/while/while/mul_grad/Mul_1
gradients/while/while/mul/Enter_1_grad/NextIteration NextIteration gradients/while/while/mul/Enter_1_grad/Add
gradients/while/while/mul/Enter_1_grad/b_acc_3 Exit gradients/while/while/mul/Enter_1_grad/Switch
gradients/while/while/mul/Enter_grad/b_acc Const
gradients/while/while/mul/Enter_grad/b_acc_1 Enter gradients/while/while/mul/Enter_grad/b_acc
gradients/while/while/mul/Enter_grad/b_acc_2 Merge gradients/while/while/mul/Enter_grad/b_acc_1,gradients/while/while/mul/Enter_grad/NextIteration
gradients/while/while/mul/Enter_grad/Switch Switch gradients/while/while/mul/Enter_grad/b_acc_2,gradients/b_count_2
gradients/while/while/mul/Enter_grad/Add Add gradients/while/while/mul/Enter_grad/Switch:1,gradients/while/while/mul/Enter_1_grad/b_acc_3
gradients/while/while/mul/Enter_grad/NextIteration NextIteration gradients/while/while/mul/Enter_grad/Add
gradients/while/while/mul/Enter_grad/b_acc_3 Exit gradients/while/while/mul/Enter_grad/Switch
gradients/while/while/Switch_1_grad_1/NextIteration NextIteration gradients/while/while/Tanh_grad/TanhGrad
)";

inline constexpr char kCondInWhileGradient[] = R"(
x Placeholder
y Placeholder
Const Const
while/Enter Enter Const
while/Enter_1 Enter x
while/Merge Merge while/Enter,while/NextIteration
while/Merge_1 Merge while/Enter_1,while/NextIteration_1
while/Less/y Const ^while/Merge
while/Less Less while/Merge,while/Less/y
while/LoopCond LoopCond while/Less
while/Switch Switch while/Merge,while/LoopCond @while/Merge
while/Switch_1 Switch while/Merge_1,while/LoopCond @while/Merge_1
while/Identity Identity while/Switch:1
while/Identity_1 Identity while/Switch_1:1
while/add/y Const ^while/Identity
while/add AddV2 while/Identity,while/add/y
while/Equal/y Const ^while/Identity
while/Equal Equal while/Identity,while/Equal/y
while/cond/Switch Switch while/Equal,while/Equal
while/cond/switch_t Identity while/cond/Switch:1
while/cond/switch_f Identity while/cond/Switch
while/cond/pred_id Identity while/Equal
while/cond/Tanh Tanh while/cond/Tanh/Switch:1
while/cond/Tanh/Switch Switch while/Identity_1,while/cond/pred_id @while/Identity_1
while/cond/mul Mul while/cond/mul/Switch,while/cond/mul/Switch_1
while/cond/mul/Switch Switch while/Identity_1,while/cond/pred_id @while/Identity_1
while/cond/mul/Enter Enter y
while/cond/mul/Switch_1 Switch while/cond/mul/Enter,while/cond/pred_id @while/cond/mul/Enter
while/cond/Merge Merge while/cond/mul,while/cond/Tanh
while/NextIteration NextIteration while/add
while/NextIteration_1 NextIteration while/cond/Merge
while/Exit Exit while/Switch
while/Exit_1 Exit while/Switch_1
gradients/Shape Const
gradients/grad_ys_0 Const
gradients/Fill Fill gradients/Shape,gradients/grad_ys_0
gradients/f_count Const
gradients/f_count_1 Enter gradients/f_count
gradients/Merge Merge gradients/f_count_1,gradients/NextIteration
gradients/Switch Switch gradients/Merge,while/LoopCond
gradients/Add/y Const ^while/Identity
gradients/Add Add gradients/Switch:1,gradients/Add/y
gradients/NextIteration NextIteration gradients/Add,^gradients/while/cond/Merge_grad/StackPushV2,^gradients/while/cond/mul_grad/Mul_1/f_sync
gradients/f_count_2 Exit gradients/Switch
gradients/b_count Const
gradients/b_count_1 Enter gradients/f_count_2
gradients/Merge_1 Merge gradients/b_count_1,gradients/NextIteration_1
gradients/GreaterEqual GreaterEqual gradients/Merge_1,gradients/GreaterEqual/Enter
gradients/GreaterEqual/Enter Enter gradients/b_count
gradients/b_count_2 LoopCond gradients/GreaterEqual
gradients/Switch_1 Switch gradients/Merge_1,gradients/b_count_2
gradients/Sub Sub gradients/Switch_1:1,gradients/GreaterEqual/Enter
gradients/NextIteration_1 NextIteration gradients/Sub,^gradients/while/cond/Merge_grad/b_sync
gradients/b_count_3 Exit gradients/Switch_1
gradients/while/Exit_1_grad/b_exit Enter gradients/Fill
gradients/while/Switch_1_grad/b_switch Merge gradients/while/Exit_1_grad/b_exit,gradients/while/Switch_1_grad_1/NextIteration
gradients/while/Merge_1_grad/Switch Switch gradients/while/Switch_1_grad/b_switch,gradients/b_count_2 @gradients/while/Switch_1_grad/b_switch
gradients/while/Enter_1_grad/Exit Exit gradients/while/Merge_1_grad/Switch
gradients/while/cond/Merge_grad/Const Const @while/cond/pred_id
gradients/while/cond/Merge_grad/f_acc StackV2 gradients/while/cond/Merge_grad/Const @while/cond/pred_id
gradients/while/cond/Merge_grad/Enter Enter gradients/while/cond/Merge_grad/f_acc
gradients/while/cond/Merge_grad/StackPushV2 StackPushV2 gradients/while/cond/Merge_grad/Enter,while/cond/pred_id,^gradients/Add
gradients/while/cond/Merge_grad/StackPopV2 StackPopV2 gradients/while/cond/Merge_grad/StackPopV2/Enter,^gradients/Sub
gradients/while/cond/Merge_grad/StackPopV2/Enter Enter gradients/while/cond/Merge_grad/f_acc
gradients/while/cond/Merge_grad/b_sync ControlTrigger ^gradients/while/cond/Merge_grad/StackPopV2,^gradients/while/cond/mul_grad/Mul_1/StackPopV2,^gradients/while/cond/Tanh_grad/TanhGrad/StackPopV2
gradients/while/cond/Merge_grad/cond_grad Switch gradients/while/Merge_1_grad/Switch:1,gradients/while/cond/Merge_grad/StackPopV2 @gradients/while/Switch_1_grad/b_switch
gradients/while/cond/mul_grad/Mul Mul gradients/while/cond/Merge_grad/cond_grad,gradients/while/cond/mul_grad/Mul/Enter
gradients/while/cond/mul_grad/Mul/Enter Enter y
gradients/while/cond/mul_grad/Mul_1 Mul gradients/while/cond/Merge_grad/cond_grad,gradients/while/cond/mul_grad/Mul_1/StackPopV2
gradients/while/cond/mul_grad/Mul_1/Const Const @while/Identity_1
gradients/while/cond/mul_grad/Mul_1/f_acc StackV2 gradients/while/cond/mul_grad/Mul_1/Const @while/Identity_1
gradients/while/cond/mul_grad/Mul_1/Enter Enter gradients/while/cond/mul_grad/Mul_1/f_acc
gradients/while/cond/mul_grad/Mul_1/StackPushV2 StackPushV2 gradients/while/cond/mul_grad/Mul_1/StackPushV2/Switch,while/cond/mul/Switch,^gradients/Add
gradients/while/cond/mul_grad/Mul_1/StackPushV2/Switch Switch gradients/while/cond/mul_grad/Mul_1/Enter,while/cond/pred_id @gradients/while/cond/mul_grad/Mul_1/Enter
gradients/while/cond/mul_grad/Mul_1/f_sync ControlTrigger ^gradients/while/cond/mul_grad/Mul_1/StackPushV2,^gradients/while/cond/Tanh_grad/TanhGrad/StackPushV2
gradients/while/cond/mul_grad/Mul_1/Switch Switch gradients/while/cond/mul_grad/Mul_1/Switch/Enter,gradients/while/cond/Merge_grad/StackPopV2 @while/Identity_1
gradients/while/cond/mul_grad/Mul_1/Switch/Enter Enter gradients/while/cond/mul_grad/Mul_1/f_acc @while/Identity_1
gradients/while/cond/mul_grad/Mul_1/StackPopV2 StackPopV2 gradients/while/cond/mul_grad/Mul_1/Switch
gradients/while/cond/Tanh_grad/TanhGrad TanhGrad gradients/while/cond/Tanh_grad/TanhGrad/StackPopV2,gradients/while/cond/Merge_grad/cond_grad:1
gradients/while/cond/Tanh_grad/TanhGrad/Const Const @while/cond/Tanh
gradients/while/cond/Tanh_grad/TanhGrad/f_acc StackV2 gradients/while/cond/Tanh_grad/TanhGrad/Const @while/cond/Tanh
gradients/while/cond/Tanh_grad/TanhGrad/Enter Enter gradients/while/cond/Tanh_grad/TanhGrad/f_acc
gradients/while/cond/Tanh_grad/TanhGrad/StackPushV2 StackPushV2 gradients/while/cond/Tanh_grad/TanhGrad/StackPushV2/Switch:1,while/cond/Tanh,^gradients/Add
gradients/while/cond/Tanh_grad/TanhGrad/StackPushV2/Switch Switch gradients/while/cond/Tanh_grad/TanhGrad/Enter,while/cond/pred_id @gradients/while/cond/Tanh_grad/TanhGrad/Enter
gradients/while/cond/Tanh_grad/TanhGrad/Switch Switch gradients/while/cond/Tanh_grad/TanhGrad/Switch/Enter,gradients/while/cond/Merge_grad/StackPopV2 @while/cond/Tanh
gradients/while/cond/Tanh_grad/TanhGrad/Switch/Enter Enter gradients/while/cond/Tanh_grad/TanhGrad/f_acc @while/cond/Tanh
gradients/while/cond/Tanh_grad/TanhGrad/StackPopV2 StackPopV2 gradients/while/cond/Tanh_grad/TanhGrad/Switch:1
gradients/Const Const ^gradients/Sub
gradients/Switch_2 Switch gradients/Const,gradients/while/cond/Merge_grad/StackPopV2 @gradients/Const
gradients/while/cond/mul/Switch_grad/cond_grad Merge gradients/while/cond/mul_grad/Mul,gradients/Switch_2:1
gradients/Const_1 Const ^gradients/Sub
gradients/Switch_3 Switch gradients/Const_1,gradients/while/cond/Merge_grad/StackPopV2 @gradients/Const_1
gradients/while/cond/mul/Switch_1_grad/cond_grad Merge gradients/while/cond/mul_grad/Mul_1,gradients/Switch_3:1
gradients/Const_2 Const ^gradients/Sub
gradients/Switch_4 Switch gradients/Const_2,gradients/while/cond/Merge_grad/StackPopV2 @gradients/Const_2
gradients/while/cond/Tanh/Switch_grad/cond_grad Merge gradients/Switch_4,gradients/while/cond/Tanh_grad/TanhGrad
gradients/while/cond/mul/Enter_grad/b_acc Const
gradients/while/cond/mul/Enter_grad/b_acc_1 Enter gradients/while/cond/mul/Enter_grad/b_acc
gradients/while/cond/mul/Enter_grad/b_acc_2 Merge gradients/while/cond/mul/Enter_grad/b_acc_1,gradients/while/cond/mul/Enter_grad/NextIteration
gradients/while/cond/mul/Enter_grad/Switch Switch gradients/while/cond/mul/Enter_grad/b_acc_2,gradients/b_count_2
gradients/while/cond/mul/Enter_grad/Add Add gradients/while/cond/mul/Enter_grad/Switch:1,gradients/while/cond/mul/Switch_1_grad/cond_grad
gradients/while/cond/mul/Enter_grad/NextIteration NextIteration gradients/while/cond/mul/Enter_grad/Add
gradients/while/cond/mul/Enter_grad/b_acc_3 Exit gradients/while/cond/mul/Enter_grad/Switch
gradients/AddN AddN gradients/while/cond/mul/Switch_grad/cond_grad,gradients/while/cond/Tanh/Switch_grad/cond_grad @gradients/while/cond/mul/Switch_grad/cond_grad
gradients/while/Switch_1_grad_1/NextIteration NextIteration gradients/AddN
)";

inline constexpr char kWhileInCondGradient[] = R"(
x Placeholder
p Placeholder
cond/Switch Switch p,p
cond/switch_t Identity cond/Switch:1
cond/switch_f Identity cond/Switch
cond/pred_id Identity p
cond/Const Const ^cond/switch_t
cond/while/Switch Switch x,cond/pred_id @x
cond/while/Enter Enter cond/Const
cond/while/Enter_1 Enter cond/while/Switch:1
cond/while/Merge Merge cond/while/Enter,cond/while/NextIteration
cond/while/Merge_1 Merge cond/while/Enter_1,cond/while/NextIteration_1
cond/while/Less/y Const ^cond/while/Merge
cond/while/Less Less cond/while/Merge,cond/while/Less/y
cond/while/LoopCond LoopCond cond/while/Less
cond/while/Switch_1 Switch cond/while/Merge,cond/while/LoopCond @cond/while/Merge
cond/while/Switch_2 Switch cond/while/Merge_1,cond/while/LoopCond @cond/while/Merge_1
cond/while/Identity Identity cond/while/Switch_1:1
cond/while/Identity_1 Identity cond/while/Switch_2:1
cond/while/add/y Const ^cond/while/Identity
cond/while/add AddV2 cond/while/Identity,cond/while/add/y
cond/while/Tanh Tanh cond/while/Identity_1
cond/while/NextIteration NextIteration cond/while/add
cond/while/NextIteration_1 NextIteration cond/while/Tanh
cond/while/Exit Exit cond/while/Switch_1
cond/while/Exit_1 Exit cond/while/Switch_2
cond/Neg Neg cond/Neg/Switch
cond/Neg/Switch Switch x,cond/pred_id @x
cond/Merge Merge cond/Neg,cond/while/Exit_1
gradients/Shape Const
gradients/grad_ys_0 Const
gradients/Fill Fill gradients/Shape,gradients/grad_ys_0
gradients/f_count Const ^cond/switch_t
gradients/f_count_1 Enter gradients/f_count
gradients/Merge Merge gradients/f_count_1,gradients/NextIteration
gradients/Switch Switch gradients/Merge,cond/while/LoopCond
gradients/Add/y Const ^cond/while/Identity
gradients/Add Add gradients/Switch:1,gradients/Add/y
gradients/NextIteration NextIteration gradients/Add,^gradients/cond/while/Tanh_grad/TanhGrad/StackPushV2
gradients/f_count_2 Exit gradients/Switch
gradients/b_count Const ^cond/switch_t
gradients/b_count_1 Enter gradients/f_count_2
gradients/Merge_1 Merge gradients/b_count_1,gradients/NextIteration_1
gradients/GreaterEqual GreaterEqual gradients/Merge_1,gradients/GreaterEqual/Enter
gradients/GreaterEqual/Enter Enter gradients/b_count
gradients/b_count_2 LoopCond gradients/GreaterEqual
gradients/Switch_1 Switch gradients/Merge_1,gradients/b_count_2
gradients/Sub Sub gradients/Switch_1:1,gradients/GreaterEqual/Enter
gradients/NextIteration_1 NextIteration gradients/Sub,^gradients/cond/while/Tanh_grad/TanhGrad/b_sync
gradients/b_count_3 Exit gradients/Switch_1
gradients/cond/Merge_grad/cond_grad Switch gradients/Fill,cond/pred_id @gradients/Fill
gradients/cond/Neg_grad/Neg Neg gradients/cond/Merge_grad/cond_grad
gradients/cond/while/Exit_1_grad/b_exit Enter gradients/cond/Merge_grad/cond_grad:1
gradients/Switch_2 Switch x,cond/pred_id
gradients/Identity Identity gradients/Switch_2:1
gradients/Shape_1 Shape gradients/Switch_2:1
gradients/zeros/Const Const ^gradients/Identity
gradients/zeros Fill gradients/Shape_1,gradients/zeros/Const
gradients/cond/Neg/Switch_grad/cond_grad Merge gradients/cond/Neg_grad/Neg,gradients/zeros
gradients/cond/while/Switch_2_grad/b_switch Merge gradients/cond/while/Exit_1_grad/b_exit,gradients/cond/while/Switch_2_grad_1/NextIteration
gradients/cond/while/Merge_1_grad/Switch Switch gradients/cond/while/Switch_2_grad/b_switch,gradients/b_count_2 @gradients/cond/while/Switch_2_grad/b_switch
gradients/cond/while/Enter_1_grad/Exit Exit gradients/cond/while/Merge_1_grad/Switch
gradients/Switch_3 Switch x,cond/pred_id
gradients/Identity_1 Identity gradients/Switch_3
gradients/Shape_2 Shape gradients/Switch_3
gradients/zeros_1/Const Const ^gradients/Identity_1
gradients/zeros_1 Fill gradients/Shape_2,gradients/zeros_1/Const
gradients/cond/while/Switch_grad/cond_grad Merge gradients/zeros_1,gradients/cond/while/Enter_1_grad/Exit
gradients/cond/while/Tanh_grad/TanhGrad TanhGrad gradients/cond/while/Tanh_grad/TanhGrad/StackPopV2,gradients/cond/while/Merge_1_grad/Switch:1
gradients/cond/while/Tanh_grad/TanhGrad/Const Const @cond/while/Tanh
gradients/cond/while/Tanh_grad/TanhGrad/f_acc StackV2 gradients/cond/while/Tanh_grad/TanhGrad/Const @cond/while/Tanh
gradients/cond/while/Tanh_grad/TanhGrad/Switch Switch gradients/cond/while/Tanh_grad/TanhGrad/f_acc,cond/pred_id @cond/while/Tanh
gradients/cond/while/Tanh_grad/TanhGrad/Enter Enter gradients/cond/while/Tanh_grad/TanhGrad/Switch:1
gradients/cond/while/Tanh_grad/TanhGrad/StackPushV2 StackPushV2 gradients/cond/while/Tanh_grad/TanhGrad/Enter,cond/while/Tanh,^gradients/Add
gradients/cond/while/Tanh_grad/TanhGrad/Switch_1 Switch gradients/cond/while/Tanh_grad/TanhGrad/Switch_1/Enter,gradients/cond/while/Tanh_grad/TanhGrad/Switch_1/Enter_1,^gradients/Sub @cond/while/Tanh
gradients/cond/while/Tanh_grad/TanhGrad/Switch_1/Enter Enter gradients/cond/while/Tanh_grad/TanhGrad/Switch:1 @cond/while/Tanh
gradients/cond/while/Tanh_grad/TanhGrad/Switch_1/Enter_1 Enter cond/pred_id @cond/while/Tanh
gradients/cond/while/Tanh_grad/TanhGrad/StackPopV2 StackPopV2 gradients/cond/while/Tanh_grad/TanhGrad/Switch_1:1
gradients/cond/while/Tanh_grad/TanhGrad/b_sync ControlTrigger ^gradients/cond/while/Tanh_grad/TanhGrad/StackPopV2
gradients/AddN AddN gradients/cond/Neg/Switch_grad/cond_grad,gradients/cond/while/Switch_grad/cond_grad @gradients/cond/Neg/Switch_grad/cond_grad
gradients/cond/while/Switch_2_grad_1/NextIteration NextIteration gradients/cond/while/Tanh_grad/TanhGrad
)";

inline constexpr char kUnusedExitGradient[] = R"(
x Placeholder
Const Const
while/Enter Enter Const
while/Enter_1 Enter x
while/Enter_2 Enter x
while/Merge Merge while/Enter,while/NextIteration
while/Merge_1 Merge while/Enter_1,while/NextIteration_1
while/Merge_2 Merge while/Enter_2,while/NextIteration_2
while/Less/y Const ^while/Merge
while/Less Less while/Merge,while/Less/y
while/LoopCond LoopCond while/Less
while/Switch Switch while/Merge,while/LoopCond @while/Merge
while/Switch_1 Switch while/Merge_1,while/LoopCond @while/Merge_1
while/Switch_2 Switch while/Merge_2,while/LoopCond @while/Merge_2
while/Identity Identity while/Switch:1
while/Identity_1 Identity while/Switch_1:1
while/Identity_2 Identity while/Switch_2:1
while/add/y Const ^while/Identity
while/add AddV2 while/Identity,while/add/y
while/Tanh Tanh while/Identity_2
while/Sin Sin while/Identity_2
while/NextIteration NextIteration while/add
while/NextIteration_1 NextIteration while/Tanh
while/NextIteration_2 NextIteration while/Sin
while/Exit Exit while/Switch
while/Exit_1 Exit while/Switch_1
while/Exit_2 Exit while/Switch_2
gradients/Shape Const
gradients/grad_ys_0 Const
gradients/Fill Fill gradients/Shape,gradients/grad_ys_0
gradients/f_count Const
gradients/f_count_1 Enter gradients/f_count
gradients/Merge Merge gradients/f_count_1,gradients/NextIteration
gradients/Switch Switch gradients/Merge,while/LoopCond
gradients/Add/y Const ^while/Identity
gradients/Add Add gradients/Switch:1,gradients/Add/y
gradients/NextIteration NextIteration gradients/Add,^gradients/while/Tanh_grad/TanhGrad/StackPushV2,^gradients/while/Sin_grad/Cos/StackPushV2
gradients/f_count_2 Exit gradients/Switch
gradients/b_count Const
gradients/b_count_1 Enter gradients/f_count_2
gradients/Merge_1 Merge gradients/b_count_1,gradients/NextIteration_1
gradients/GreaterEqual GreaterEqual gradients/Merge_1,gradients/GreaterEqual/Enter
gradients/GreaterEqual/Enter Enter gradients/b_count
gradients/b_count_2 LoopCond gradients/GreaterEqual
gradients/Switch_1 Switch gradients/Merge_1,gradients/b_count_2
gradients/Sub Sub gradients/Switch_1:1,gradients/GreaterEqual/Enter
gradients/NextIteration_1 NextIteration gradients/Sub,^gradients/while/Tanh_grad/TanhGrad/b_sync
gradients/b_count_3 Exit gradients/Switch_1
gradients/zeros Const
gradients/while/Exit_1_grad/b_exit Enter gradients/Fill
gradients/while/Exit_2_grad/b_exit Enter gradients/zeros
gradients/while/Switch_1_grad/b_switch Merge gradients/while/Exit_1_grad/b_exit,NextIteration
gradients/while/Switch_2_grad/b_switch Merge gradients/while/Exit_2_grad/b_exit,gradients/while/Switch_2_grad_1/NextIteration
gradients/while/Merge_1_grad/Switch Switch gradients/while/Switch_1_grad/b_switch,gradients/b_count_2 @gradients/while/Switch_1_grad/b_switch
gradients/while/Merge_2_grad/Switch Switch gradients/while/Switch_2_grad/b_switch,gradients/b_count_2 @gradients/while/Switch_2_grad/b_switch
gradients/while/Enter_1_grad/Exit Exit gradients/while/Merge_1_grad/Switch
gradients/while/Enter_2_grad/Exit Exit gradients/while/Merge_2_grad/Switch
gradients/while/Tanh_grad/TanhGrad TanhGrad gradients/while/Tanh_grad/TanhGrad/StackPopV2,gradients/while/Merge_1_grad/Switch:1
gradients/while/Tanh_grad/TanhGrad/Const Const @while/Tanh
gradients/while/Tanh_grad/TanhGrad/f_acc StackV2 gradients/while/Tanh_grad/TanhGrad/Const @while/Tanh
gradients/while/Tanh_grad/TanhGrad/Enter Enter gradients/while/Tanh_grad/TanhGrad/f_acc
gradients/while/Tanh_grad/TanhGrad/StackPushV2 StackPushV2 gradients/while/Tanh_grad/TanhGrad/Enter,while/Tanh,^gradients/Add
gradients/while/Tanh_grad/TanhGrad/StackPopV2 StackPopV2 gradients/while/Tanh_grad/TanhGrad/StackPopV2/Enter,^gradients/Sub
gradients/while/Tanh_grad/TanhGrad/StackPopV2/Enter Enter gradients/while/Tanh_grad/TanhGrad/f_acc
gradients/while/Tanh_grad/TanhGrad/b_sync ControlTrigger ^gradients/while/Tanh_grad/TanhGrad/StackPopV2,^gradients/while/Sin_grad/Cos/StackPopV2
gradients/AddN AddN gradients/while/Enter_1_grad/Exit,gradients/while/Enter_2_grad/Exit @gradients/while/Enter_1_grad/Exit
gradients/while/Sin_grad/Cos Cos gradients/while/Sin_grad/Cos/StackPopV2,^gradients/while/Merge_2_grad/Switch
gradients/while/Sin_grad/Cos/Const Const @while/Identity_2
gradients/while/Sin_grad/Cos/f_acc StackV2 gradients/while/Sin_grad/Cos/Const @while/Identity_2
gradients/while/Sin_grad/Cos/Enter Enter gradients/while/Sin_grad/Cos/f_acc
gradients/while/Sin_grad/Cos/StackPushV2 StackPushV2 gradients/while/Sin_grad/Cos/Enter,while/Identity_2,^gradients/Add
gradients/while/Sin_grad/Cos/StackPopV2 StackPopV2 gradients/while/Sin_grad/Cos/StackPopV2/Enter,^gradients/Sub
gradients/while/Sin_grad/Cos/StackPopV2/Enter Enter gradients/while/Sin_grad/Cos/f_acc
gradients/while/Sin_grad/mul Mul gradients/while/Merge_2_grad/Switch:1,gradients/while/Sin_grad/Cos
gradients/AddN_1 AddN gradients/while/Tanh_grad/TanhGrad,gradients/while/Sin_grad/mul @gradients/while/Tanh_grad/TanhGrad
gradients/while/Switch_2_grad_1/NextIteration NextIteration gradients/AddN_1
Const_1 Const ^gradients/Sub
NextIteration NextIteration Const_1
)";

}  // namespace muster
