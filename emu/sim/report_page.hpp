// Owns the page of report.html: its style and the few functions that draw. It asks nobody for
// anything.
#pragma once

namespace weft::emu {

// What stands before and after the run's data, a JSON object.
inline constexpr const char* kReportHead = R"page(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>weft sim</title><style>
:root{--bg:#fbfbf9;--card:#fff;--ink:#1d2330;--dim:#667085;--line:#e4e6ea;--a:#2457c5;--b:#c2571a;--ok:#177245;--bad:#b3261e}
@media(prefers-color-scheme:dark){:root{--bg:#12151b;--card:#1a1f28;--ink:#e6e9ef;--dim:#98a2b3;--line:#2c3340;
--a:#7aa2ff;--b:#ffa25f;--ok:#5fd39a;--bad:#ff8a80}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1120px;margin:0 auto;padding:20px 16px 60px}h1{font-size:1.35rem;margin:0 0 2px}h2{font-size:1rem;margin:0 0 8px}
p{margin:0 0 8px;color:var(--dim)}section{background:var(--card);border:1px solid var(--line);border-radius:10px;
padding:14px 16px;margin-top:14px;overflow:hidden}.grid{display:grid;gap:14px;grid-template-columns:repeat(2,minmax(0,1fr))}
.grid section{margin-top:0}.grid{margin-top:14px}@media(max-width:760px){.grid{grid-template-columns:minmax(0,1fr)}}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));gap:10px}.facts b{display:block;font-size:1.15rem;
font-variant-numeric:tabular-nums}.facts span{color:var(--dim);font-size:.82rem}svg{width:100%;height:auto;display:block}
svg text{fill:var(--dim);font-size:11px;font-family:inherit}.axis{stroke:var(--line)}table{border-collapse:collapse;width:100%;
font-variant-numeric:tabular-nums;font-size:.88rem}td,th{text-align:left;padding:4px 10px 4px 0;border-bottom:1px solid var(--line)}
.ok{color:var(--ok)}.bad{color:var(--bad)}pre{white-space:pre-wrap;word-break:break-all;font-size:.75rem;color:var(--dim);margin:0}
.scroll{overflow-x:auto}</style></head><body><main id="page"></main><script>"use strict";const run=)page";

inline constexpr const char* kReportTail = R"page(;
const $=(tag,at={},...kids)=>{const svg=["svg","g","path","line","rect","text","circle","title"].includes(tag);
const e=svg?document.createElementNS("http://www.w3.org/2000/svg",tag):document.createElement(tag);
for(const k in at)e.setAttribute(k,at[k]);for(const k of kids)e.append(k);return e};
const page=document.getElementById("page"),W=520,H=230,L=52,B=30,T=10,R=12;
const fmt=v=>v>=1000?Math.round(v).toLocaleString("en"):v>=100?v.toFixed(0):v>=1?v.toFixed(1):v.toPrecision(2);
const card=(title,note,...kids)=>{const s=$("section",{},$("h2",{},title));if(note)s.append($("p",{},note));s.append(...kids);return s};
const heat=v=>{const t=Math.max(0,Math.min(1,v));return `hsl(${Math.round(215-205*t)} ${Math.round(35+45*t)}% ${Math.round(62-14*t)}%)`};
function ticks(max){const raw=max/4||1,m=10**Math.floor(Math.log10(raw)),s=[1,2,5,10].find(k=>k*m>=raw)*m,out=[];
for(let v=0;v<=max*1.0001;v+=s)out.push(v);return out}
function chart({series,xmax,ymax,xl,yl,marks=[]}){const s=$("svg",{viewBox:`0 0 ${W} ${H}`,role:"img","aria-label":yl+" over "+xl});
const x=v=>L+v/xmax*(W-L-R),y=v=>H-B-v/ymax*(H-B-T);
for(const v of ticks(ymax)){s.append($("line",{x1:L,x2:W-R,y1:y(v),y2:y(v),class:"axis"}),$("text",{x:L-6,y:y(v)+4,"text-anchor":"end"},fmt(v)))}
for(const v of ticks(xmax))s.append($("text",{x:x(v),y:H-B+15,"text-anchor":"middle"},fmt(v)));
s.append($("text",{x:W-R,y:H-2,"text-anchor":"end"},xl),$("text",{x:L,y:T-1},yl));
for(const m of marks)s.append($("rect",{x:x(m.from),y:T,width:Math.max(1.5,x(Math.min(m.to,xmax))-x(m.from)),height:H-B-T,fill:"var(--bad)",opacity:.14},$("title",{},m.name)));
for(const q of series)s.append($("path",{d:q.points.map((p,i)=>(i?"L":"M")+x(p[0]).toFixed(1)+" "+y(Math.min(p[1],ymax)).toFixed(1)).join(""),fill:"none",stroke:q.color,"stroke-width":1.8},$("title",{},q.name)));
return s}
function map(rows,label,xmax,xl){const n=Math.max(1,...rows.map(r=>r.values.length)),rh=Math.max(4,Math.min(16,320/rows.length)),h=rows.length*rh+24,left=label?120:L;
const s=$("svg",{viewBox:`0 0 ${W} ${h}`,role:"img"});rows.forEach((r,i)=>{if(label&&rh>=9)s.append($("text",{x:left-5,y:i*rh+rh-3,"text-anchor":"end"},r.name));
let from=0;for(let k=1;k<=r.values.length;k++){if(k<r.values.length&&r.values[k]===r.values[from])continue;
if(r.values[from]>0)s.append($("rect",{x:left+from/n*(W-left-R),y:i*rh,width:(k-from)/n*(W-left-R)+.4,height:rh-.6,fill:heat(r.values[from]/r.max)},$("title",{},r.name)));from=k}});
for(const v of ticks(xmax))s.append($("text",{x:left+v/xmax*(W-left-R),y:h-6,"text-anchor":"middle"},fmt(v)));
s.append($("text",{x:W-R,y:h-6,"text-anchor":"end"},xl));return s}
function drawing(t){const w=1080,h=60+t.tiers.length*96,s=$("svg",{viewBox:`0 0 ${w} ${h}`,role:"img","aria-label":"topology"}),at={};
t.tiers.forEach((names,i)=>names.forEach((n,k)=>{at[n]=[(k+.5)/names.length*(w-30)+15,h-34-i*96]}));
for(const l of t.links){const a=at[l.a],b=at[l.b];if(a&&b)s.append($("line",{x1:a[0],y1:a[1],x2:b[0],y2:b[1],stroke:heat(l.use),"stroke-width":.6+2.2*l.use,opacity:.35+.65*l.use},$("title",{},`${l.a} - ${l.b}: ${(l.use*100).toFixed(0)} % used`)))}
t.tiers.forEach((names,i)=>{const r=Math.max(1.6,Math.min(7,w/names.length/3));names.forEach(n=>{s.append($("circle",{cx:at[n][0],cy:at[n][1],r,fill:"var(--card)",stroke:"var(--ink)","stroke-width":1.1},$("title",{},n)))});
s.append($("text",{x:2,y:h-34-i*96-12},`${t.names[i]} (${t.counts[i]})`))});return s}
const r=run.result,ok=r.within_bound;
page.append($("h1",{},run.title||r.scenario),$("p",{},`${r.scenario}${r.variant?" / "+r.variant:""}, seed ${r.seed}, ${r.hosts} NICs, ${r.flows} flows, digest ${r.digest}`));
const fact=(v,n,c="")=>$("div",{},$("b",{class:c},v),$("span",{},n));
page.append($("section",{},$("div",{class:"facts"},fact(fmt(r.makespan_us)+" us","all flows done",r.checks.length?(ok?"ok":"bad"):""),fact(r.ratio.toFixed(3),"times the ideal "+fmt(r.ideal_us)+" us"),
fact(fmt(r.p50_fct_us)+" us","median flow"),fact(fmt(r.p99_fct_us)+" us","99th percentile"),fact(fmt(r.goodput_gbps)+" Gb/s","goodput together"),fact(r.jain.toFixed(4),"Jain index"),
fact(fmt(r.retransmitted),"retransmitted of "+fmt(r.new_packets)),fact(fmt(r.trimmed)+" / "+fmt(r.marked),"trimmed / marked"),fact(fmt(r.longest_queue_bytes)+" B","longest queue, "+r.longest_queue_link))));
if(r.checks.length){const t=$("table",{},$("tr",{},...["expected","value","limit",""].map(k=>$("th",{},k))));for(const c of r.checks)t.append($("tr",{},$("td",{},c.what),$("td",{},fmt(c.value)),$("td",{},fmt(c.limit)),$("td",{class:c.met?"ok":"bad"},c.met?"met":"missed")));page.append(card("Bounds",run.reference,$("div",{class:"scroll"},t)))}
const end=run.samples.length?run.samples[run.samples.length-1][0]:r.makespan_us,marks=(r.faults||[]).map((f,i)=>({name:f.name,from:f.at_us,to:run.fault_ends[i]<0?end:run.fault_ends[i]}));
const grid=$("div",{class:"grid"});page.append(grid);
const fmax=Math.max(...run.fct,r.ideal_us)*1.02;
grid.append(card("Flow completion times","share of flows done within a time; the vertical line is the ideal",(()=>{const c=chart({series:[{name:"flows",color:"var(--a)",points:run.fct.map((v,i)=>[v,(i+1)/run.fct.length])},{name:"ideal",color:"var(--b)",points:[[r.ideal_us,0],[r.ideal_us,1]]}],xmax:fmax,ymax:1,xl:"us",yl:"share"});return c})()));
if(run.samples.length>1){const g=run.samples.map(s=>[s[0],s[1]]),gm=Math.max(1,...g.map(p=>p[1]))*1.05;
grid.append(card("Goodput over time",marks.length?"shaded: faults":"all receivers together",chart({series:[{name:"goodput",color:"var(--a)",points:g}],xmax:end,ymax:gm,xl:"us",yl:"Gb/s",marks})));
const mk=run.samples.map(s=>[s[0],s[4]]),tr=run.samples.map(s=>[s[0],s[3]+s[2]]);
grid.append(card("Marks, trims and drops","per sample: marks blue, trims and drops orange",chart({series:[{name:"marks",color:"var(--a)",points:mk},{name:"trims and drops",color:"var(--b)",points:tr}],xmax:end,ymax:Math.max(1,...mk.map(p=>p[1]),...tr.map(p=>p[1])),xl:"us",yl:"frames",marks})))}
if(run.queues.length)grid.append(card("Longest queues over time","share of the buffer, blue empty to red full",map(run.queues.map(q=>({name:q.name,values:q.values,max:255})),true,end,"us")));
if(run.paths.length)grid.append(card("Paths of one flow",run.watched+": packets by path (rows) and time",map(run.paths.map((v,i)=>({name:"path "+i,values:v,max:run.path_max})),false,end,"us")));
if(run.topology)page.append(card("Use of links","colour and width: bytes over what the link could carry in the whole time, of the busier direction",drawing(run.topology)));
if(r.faults){const t=$("table",{},$("tr",{},...["fault","at","detected after","last loss after","recovered after","frames lost"].map(k=>$("th",{},k))));
const us=v=>v<0?"-":`${fmt(v)} us (${(v/run.base_rtt_us).toFixed(1)} RTT)`;for(const f of r.faults)t.append($("tr",{},$("td",{},f.name),$("td",{},fmt(f.at_us)+" us"),$("td",{},us(f.detected_us)),$("td",{},us(f.abandoned_us)),$("td",{},us(f.recovered_us)),$("td",{},fmt(f.lost_frames))));
page.append(card("Faults","the transport's reaction; one RTT is the unloaded round trip",$("div",{class:"scroll"},t)))}
page.append(card("Result as JSON","",$("pre",{},JSON.stringify(r))));document.title="weft sim: "+r.scenario;
</script></body></html>
)page";

}  // namespace weft::emu
